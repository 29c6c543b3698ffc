//! Arguments that several commands share.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    marker::PhantomData,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use squall::{Error, Format, Profile, Session, report::fail_if::FailIf};
use squall_options::RunOptions;
use squall_profile::short::Argument;
use squall_units::{Cannot, Nanos, parse_count};

/// Parsed arguments, and those of them given on the command line as keys of the profile.
#[derive(Clone, Debug)]
pub struct Given<A> {
    pub args: A,
    pub arguments: Vec<Argument>,
}

impl<A: Args> Args for Given<A> {
    fn augment_args(command: Command) -> Command {
        A::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        A::augment_args_for_update(command)
    }
}

impl<A: Args> FromArgMatches for Given<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let known = A::augment_args(Command::new("known"));
        let mut arguments = Vec::new();
        for known in known.get_arguments() {
            let id = known.get_id().as_str();
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            let key = id.to_owned();
            let name = known.get_long().map_or_else(|| id.to_owned(), |long| format!("--{long}"));
            if matches!(known.get_action(), ArgAction::SetTrue) {
                arguments.push(Argument { key, name, text: None });
                continue;
            }
            for text in matches.get_raw(id).into_iter().flatten() {
                let text = text.to_string_lossy().into_owned();
                let name = match known.get_action() {
                    ArgAction::Append => format!("{name} {text}"),
                    _ => name.clone(),
                };
                arguments.push(Argument { key: key.clone(), name, text: Some(text) });
            }
        }
        Ok(Self { args: A::from_arg_matches(matches)?, arguments })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The address of port A, and that of port B if there is one.
pub fn two<'a>(port: &'a str, port2: Option<&'a String>) -> Vec<&'a str> {
    [port].into_iter().chain(port2.map(String::as_str)).collect()
}

/// Output of the result.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Result")]
pub struct Output {
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<String>,
    /// Write the report as one HTML file with plots
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Print that page as PDF, by Chromium, Chrome, Edge or Brave
    #[arg(long, value_name = "FILE.pdf")]
    pub pdf: Option<PathBuf>,
    /// End with exit status 1 if EXPR holds on any stream or template: 'loss > 0', 'latency.p99 >
    /// 50us', 'web.http.5xx > 1 %', 'not valid'; repeatable
    #[arg(long, value_name = "EXPR", value_parser = FailIf::parse)]
    pub fail_if: Vec<FailIf>,
    /// End with exit status 0 instead of 4 if the verdict is NOT VALID
    #[arg(long, env = "SQUALL_ALLOW_INVALID", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub allow_invalid: bool,
    /// Show no progress and no summary
    #[arg(short, long)]
    pub quiet: bool,
    /// Whether the summary goes to standard error because packets go to standard output.
    #[arg(skip)]
    pub to_stderr: bool,
    /// Whether the report is from an earlier run, whose interruption does not set the exit status.
    #[arg(skip)]
    pub saved: bool,
}

/// The run options of a command. [`RunOptions`] declares all of them.
#[derive(Clone, Debug)]
pub struct Options<C> {
    pub run: RunOptions,
    of: PhantomData<C>,
}

/// Selects which options a command has.
pub trait Choice {
    fn has(name: &str) -> bool;

    /// Adapts an option to the names that the command uses.
    fn adapt(arg: Arg) -> Arg {
        arg
    }
}

/// All run options.
#[derive(Clone, Debug)]
pub struct All;

impl Choice for All {
    fn has(_: &str) -> bool {
        true
    }
}

impl<C: Choice> Options<C> {
    fn args() -> Vec<Arg> {
        let all = RunOptions::augment_args(Command::new("all"));
        let chosen = all.get_arguments().filter(|arg| C::has(arg.get_id().as_str()));
        chosen.cloned().map(C::adapt).collect()
    }

    /// A session of `profile` with these options.
    pub fn session(&self, profile: Profile) -> Result<Session, Error> {
        Ok(Session::new(profile).with(self.run.clone())?.command(command_line()))
    }
}

impl<C: Choice> Args for Options<C> {
    fn augment_args(command: Command) -> Command {
        command.args(Self::args())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: Choice> FromArgMatches for Options<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // Parse the given options again, with a command that has all options.
        let mut words = Vec::new();
        for arg in Self::args() {
            let id = arg.get_id().as_str();
            if matches.value_source(id) != Some(ValueSource::CommandLine) {
                continue;
            }
            for value in matches.get_raw(id).into_iter().flatten() {
                let mut word = OsString::from(format!("--{}=", arg.get_long().unwrap_or(id)));
                word.push(value);
                words.push(word);
            }
        }
        let all = RunOptions::augment_args(Command::new("all").no_binary_name(true));
        let run = RunOptions::from_arg_matches(&all.try_get_matches_from(words)?)?;
        run.check().map_err(|why| {
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{why}\n"))
        })?;
        Ok(Self { run, of: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Checks that the text parses as a `T`, and returns it unchanged.
pub fn checked<T: FromStr<Err: ToString>>(text: &str) -> Result<String, String> {
    text.parse::<T>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// Parses `1`, `10k`, `1M`; rejects 0.
pub fn parse_some(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(0) => Err("expected 1 or more, such as 1000 or 10k".into()),
        count => count.map_err(|e| e.to_string()),
    }
}

/// Parses `100ms`, `1m30s`; rejects 0.
pub fn parse_time(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(Nanos::ZERO) => Err("expected a time above 0, such as 100ms or 10s".into()),
        time => time.map_err(|e| e.to_string()),
    }
}

/// The addresses of `ports`. If `asked`, their interfaces stay out of promiscuous mode.
pub fn unpromiscuous(ports: &[String], asked: bool) -> Vec<String> {
    ports
        .iter()
        .map(|address| if asked { format!("{address},promisc=0") } else { address.clone() })
        .collect()
}

/// A profile, and options that replace its ports.
#[derive(Args, Clone, Debug)]
pub struct ProfileFile {
    /// Profile in TOML, YAML or JSON, by the name's ending; - reads TOML from standard input
    #[arg(value_name = "PROFILE")]
    pub profile: PathBuf,
    /// Use ADDR for the profile's port NAME: A=af_packet:eth1, A=loop:0; repeatable
    #[arg(short, long, value_name = "NAME=ADDR")]
    pub port: Vec<String>,
    /// The profile is one of TRex's: a program in Python, or streams in YAML or JSON; its ports 0,
    /// 1, ... are those of -i
    #[arg(long, help_heading = "TRex")]
    pub trex: bool,
    #[command(flatten)]
    pub of_trex: TrexOptions,
}

/// Options that load a TRex profile.
#[derive(Args, Clone, Debug)]
pub struct TrexOptions {
    /// Address of the TRex profile's next port: eth1, pcap:out.pcap; repeatable
    #[arg(short, long, value_name = "ADDR", help_heading = "TRex")]
    interface: Vec<String>,
    #[command(flatten)]
    loading: TrexLoading,
}

/// Options that load a TRex profile for any command.
#[derive(Args, Clone, Debug)]
pub struct TrexLoading {
    /// Pass NAME=VALUE to the TRex profile; repeatable, or several with commas
    #[arg(short, long, value_name = "NAME=VALUE", value_delimiter = ',', help_heading = "TRex")]
    tunable: Vec<String>,
    /// Folder with the package `trex` of TRex's client [default: where Python finds it; profiles of
    /// streams need none]
    #[arg(long, value_name = "FOLDER", help_heading = "TRex")]
    trex_lib: Option<PathBuf>,
    /// Header of the packets of the TRex profile's streams with latency: Squall's signature
    /// (squall), which another TRex does not know, or TRex's own 16 octets (trex)
    #[arg(long, value_name = "FORM", default_value = "squall", value_parser = ["squall", "trex"], help_heading = "TRex")]
    trex_payload: String,
    /// Client clusters of TRex (its --client_cfg, YAML) for a TRex profile of flows: VLANs and MAC
    /// addresses of devices for ranges of clients
    #[arg(long, value_name = "FILE", help_heading = "TRex")]
    client_cfg: Option<PathBuf>,
}

impl TrexLoading {
    /// Loads `path` for ports with these addresses.
    pub fn of<T>(
        &self,
        path: &Path,
        ports: &[String],
        what: impl FnOnce(squall_trex::File<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut tunables = BTreeMap::new();
        for text in &self.tunable {
            let (name, value) = text.split_once('=').ok_or_else(|| {
                Error::Usage(format!("--tunable {text}: expected NAME=VALUE, such as size=64"))
            })?;
            // Keep numbers and booleans; everything else is text.
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            tunables.insert(name.to_owned(), value);
        }
        let library = self.trex_lib.as_deref();
        let headers = self.trex_payload == "trex";
        let clusters = self.client_cfg.as_deref();
        what(squall_trex::File { path, library, tunables: &tunables, ports, headers, clusters })
    }
}

impl ProfileFile {
    pub fn load(&self) -> Result<Profile, Error> {
        let mut profile = if self.trex {
            self.of_trex.load(&self.profile)?
        } else if self.of_trex.is_given() {
            return Err(Error::Usage(
                "-i, -t, --trex-lib, --trex-payload and --client-cfg are for profiles of TRex\n  try \
                 --trex, or --port NAME=ADDR"
                    .into(),
            ));
        } else if self.profile == Path::new("-") {
            let text = squall_profile::read_open(std::io::stdin())
                .map_err(|error| Cannot::read("standard input", &error))?;
            Profile::parse(&text, "<stdin>", Format::Toml)?
        } else {
            Profile::load(&self.profile)?
        };
        for text in &self.port {
            put_port(&mut profile, text)?;
        }
        Ok(profile)
    }
}

impl TrexOptions {
    fn is_given(&self) -> bool {
        let TrexLoading { tunable, trex_lib, trex_payload, client_cfg } = &self.loading;
        let loads = !tunable.is_empty() || trex_lib.is_some() || client_cfg.is_some();
        loads || trex_payload != "squall" || !self.interface.is_empty()
    }

    pub fn load(&self, path: &Path) -> Result<Profile, Error> {
        if self.interface.is_empty() {
            return Err(Error::Usage(
                "--trex: the profile has no ports\n  try -i eth1, or -i pcap:out.pcap".into(),
            ));
        }
        self.loading.of(path, &self.interface, |file| file.load())
    }
}

/// Parses and applies `A=af_packet:eth1`.
pub fn put_port(profile: &mut Profile, text: &str) -> Result<(), Error> {
    let known = profile.ports.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
    let (name, address) = text
        .split_once('=')
        .filter(|(name, address)| !name.is_empty() && !address.is_empty())
        .ok_or_else(|| {
            Error::Usage(format!(
                "--port {text}: expected NAME=ADDR, such as A=loop:0\n  the profile has {known}"
            ))
        })?;
    let Some(port) = profile.ports.iter_mut().find(|p| p.name == name) else {
        return Err(Error::Usage(format!(
            "--port {text}: the profile has no port {name:?}\n  it has {known}"
        )));
    };
    port.address = address.to_owned();
    // The address no longer comes from the file, so it has no position there.
    port.at = Default::default();
    Ok(())
}

/// The command line, quoted for a shell.
pub fn command_line() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+#".contains(c);
    let quoted = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    ["squall".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_the_profile_does_not_have_is_refused_with_those_it_has() {
        let text = "[ports]\nA = \"loop:0\"\nB = \"loop:1\"\n[[stream]]\nport = \"A\"\npacket = \
                    \"eth/ipv4/udp\"\nrate = 1";
        let mut profile = Profile::parse(text, "t", Format::Toml).unwrap();
        put_port(&mut profile, "B=null:").unwrap();
        assert_eq!(profile.ports[1].address, "null:");
        let error = put_port(&mut profile, "C=null:").unwrap_err().to_string();
        assert!(error.contains("no port \"C\"") && error.contains("A, B"), "{error}");
        assert!(put_port(&mut profile, "null:").is_err());
    }
}
