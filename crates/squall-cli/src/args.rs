//! Arguments that several commands have.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use squall::{
    Error, Format, Multiplier, Profile, Session,
    report::fail_if::FailIf,
    units::{Nanos, parse_count},
};

/// What becomes of the result.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Result")]
pub struct Output {
    /// Writes the report as JSON; - is the standard output
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<String>,
    /// Writes the report as one HTML file with plots
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Ends with exit status 1 if EXPR holds on any stream: 'loss > 0', 'latency.p99 > 50us', 'not
    /// valid'; repeatable
    #[arg(long, value_name = "EXPR", value_parser = FailIf::parse)]
    pub fail_if: Vec<FailIf>,
    /// Ends with exit status 0, not 4, where the verdict is NOT VALID
    #[arg(long, env = "SQUALL_ALLOW_INVALID", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub allow_invalid: bool,
    /// Adds a hash of all frames to the report, the same for the same frames in any order
    #[arg(long)]
    pub fingerprint: bool,
    /// Shows nothing on the way and no summary
    #[arg(short, long)]
    pub quiet: bool,
    /// The summary goes there because packets are on the standard output.
    #[arg(skip)]
    pub to_stderr: bool,
}

/// How something is sent.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Running")]
pub struct Running {
    /// Stop after this time: 10s, 1m30s, 500ms
    #[arg(short, long, value_name = "TIME")]
    pub duration: Option<Nanos>,
    /// Stop after N frames, counted over all ports: 1000, 1M
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_count)]
    pub count: Option<u64>,
    /// Multiply all rates (2, 0.5), or make the streams of each port add up to a rate (1mpps, 50%,
    /// 2gbps)
    #[arg(short, long, value_name = "FACTOR|RATE")]
    pub mult: Option<Multiplier>,
    /// Workers; by default one for each sending port, and one to receive if there is a CPU left
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: Option<u16>,
    /// CPUs to bind the workers to, one each: 2-5, 0,2,4; without --cores as many workers [default:
    /// CPUs to which no other run has bound a worker]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    pub cpus: Option<CpuList>,
    /// Feeds every random choice: same profile and seed, same octets
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Time that passes (real), or that leaps from departure to departure (virtual: files, tests)
    /// [default: virtual if every port is a file, else real]
    #[arg(long, value_enum, value_name = "CLOCK", hide_possible_values = true)]
    pub clock: Option<Clock>,
}

/// Of CPU numbers; a type of its own, because a plain list would be an argument that may be
/// repeated.
#[derive(Clone, Debug)]
pub struct CpuList(pub Vec<u32>);

pub fn parse_cpus(text: &str) -> Result<CpuList, String> {
    squall::parse_cpus(text).map(CpuList)
}

/// `1`, `10k`, `1M`; not 0.
pub fn parse_some(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(0) => Err("expected 1 or more, such as 1000 or 10k".into()),
        count => count.map_err(|e| e.to_string()),
    }
}

/// `100ms`, `1m30s`; not 0.
pub fn parse_time(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(Nanos::ZERO) => Err("expected a time above 0, such as 100ms or 10s".into()),
        time => time.map_err(|e| e.to_string()),
    }
}

/// The addresses of `ports` that leave their interfaces as they are, if so `asked`.
pub fn unpromiscuous(ports: &[String], asked: bool) -> Vec<String> {
    ports
        .iter()
        .map(|address| if asked { format!("{address},promisc=0") } else { address.clone() })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Clock {
    Real,
    Virtual,
}

impl Running {
    /// These arguments over what the profile says.
    pub fn session(&self, mut profile: Profile) -> Session {
        profile.stop.duration = self.duration.or(profile.stop.duration);
        profile.stop.packets = self.count.or(profile.stop.packets);
        profile.seed = self.seed.unwrap_or(profile.seed);
        Session {
            cores: self.cores.map(usize::from),
            cpus: self.cpus.as_ref().map(|list| list.0.clone()),
            multiplier: self.mult,
            virtual_time: self.clock.map(|clock| clock == Clock::Virtual),
            command: command_line(),
            ..Session::new(profile)
        }
    }
}

/// A profile, and its ports over again.
#[derive(Args, Clone, Debug)]
pub struct ProfileFile {
    /// .toml, .yaml or .json; - reads TOML from the standard input
    #[arg(value_name = "PROFILE")]
    pub profile: PathBuf,
    /// Puts the profile's port NAME elsewhere: A=af_packet:eth1, A=loop:0; repeatable
    #[arg(short, long, value_name = "NAME=ADDR")]
    pub port: Vec<String>,
}

impl ProfileFile {
    pub fn load(&self) -> Result<Profile, Error> {
        let mut profile = if self.profile == Path::new("-") {
            let text = squall::read_open(std::io::stdin())
                .map_err(|e| Error::Usage(format!("the standard input cannot be read: {e}")))?;
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

/// `A=af_packet:eth1`
fn put_port(profile: &mut Profile, text: &str) -> Result<(), Error> {
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
    // No longer what the file says there.
    port.at = Default::default();
    Ok(())
}

/// The command as one would type it again.
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
