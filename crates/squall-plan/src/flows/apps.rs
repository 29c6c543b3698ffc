//! Applications that are built in, and what can be said of each: from the words of a profile.

use std::fmt::Write;

use squall_apps::{
    Instruction, Program, ProgramError,
    builtin::{self, Application, HttpClient},
};
use squall_profile::{Mistakes, Said};
use squall_units::{Nanos, parse_octets};

use super::Ends;

/// An application's name, what it takes, and one line about it.
const OPTIONS: [(&str, &[&str]); 14] = [
    ("http", &["url", "body", "post", "requests", "pipeline", "think", "close", "within"]),
    ("http-get", &[]),
    ("http-post", &[]),
    ("exchange", &["request", "response", "count"]),
    ("https-like", &["body"]),
    ("dns", &[]),
    ("smtp", &["letter"]),
    ("sip", &["talk"]),
    ("rtp", &["packets"]),
    ("smb-like", &["blocks"]),
    ("oracle-like", &["statements"]),
    ("citrix-like", &["keys"]),
    ("video", &["chunks", "chunk", "pause"]),
    ("browse", &[]),
];

/// An application that is built in.
pub struct ApplicationInfo {
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// What `options` of a template may say of it.
    pub options: &'static [&'static str],
}

/// The applications that are built in, in the order in which they are shown.
pub fn catalogue() -> Vec<ApplicationInfo> {
    let info = |&(name, options): &(&'static str, &'static [&'static str])| {
        let about = match name {
            "http" => "HTTP/1.1: GETs or POSTs over a connection, answered with a body",
            "exchange" => "a request and an answer of so many octets, again and again",
            name => builtin::application(library_name(name)).map_or("", |app| app.about),
        };
        ApplicationInfo { name, about, options }
    };
    let mix = ApplicationInfo {
        name: "mix",
        about: "all of them, as an office has them, in shares of one rate",
        options: &[],
    };
    OPTIONS.iter().map(info).chain([mix]).collect()
}

/// The applications that are built in, a line each, with their options.
pub fn applications() -> String {
    let mut text = String::new();
    for ApplicationInfo { name, about, options } in catalogue() {
        // A String takes all.
        let _ = writeln!(text, "{name:<12} {about}");
        if !options.is_empty() {
            let _ = writeln!(text, "{:<12}   options: {}", "", options.join(", "));
        }
    }
    text
}

/// What the library calls it: its `http` is one with all options given.
fn library_name(name: &str) -> &str {
    if name == "browse" { "http" } else { name }
}

/// Applications that stand for a name, and their shares.
pub fn ends(
    app: &Said,
    options: &[(String, Said)],
    mistakes: &mut Mistakes<'_>,
) -> Option<Vec<(u32, String, Ends)>> {
    if app.text == "mix" {
        if let Some((name, said)) = options.first() {
            mistakes.note(
                said,
                &format!("options.{name}: a mix has no options"),
                "try a template for each application",
            );
        }
        let ends = |share: builtin::Share| {
            (share.weight, share.application.name.to_owned(), of(share.application))
        };
        return Some(builtin::mix().into_iter().map(ends).collect());
    }
    let Some((_, known)) = OPTIONS.iter().find(|(name, _)| *name == app.text) else {
        let hint =
            squall_units::suggest(&app.text, OPTIONS.iter().map(|(name, _)| *name).chain(["mix"]));
        mistakes.note(app, &format!("app = {:?} is not built in", app.text), &hint);
        return None;
    };
    let mut right = true;
    for (name, said) in options.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
        let hint = if known.is_empty() {
            "it has none".into()
        } else {
            squall_units::suggest(name, known.iter().copied())
        };
        mistakes.note(said, &format!("options.{name} is none of {:?}", app.text), &hint);
        right = false;
    }
    let before = mistakes.len();
    let given = Given { options };
    let made = make(&app.text, &given, mistakes);
    let made = match made {
        Ok(made) => made,
        Err(error) => {
            mistakes.told(app, &error);
            None
        }
    };
    (right && mistakes.len() == before).then_some(())?;
    Some(vec![(1, app.text.clone(), made?)])
}

fn of(app: Application) -> Ends {
    Ends { client: app.client, server: app.server, port: app.port }
}

fn make(
    name: &str,
    given: &Given<'_>,
    mistakes: &mut Mistakes<'_>,
) -> Result<Option<Ends>, ProgramError> {
    Ok(Some(match name {
        "http" => return http(given, mistakes),
        "exchange" => {
            let (request, response) =
                (given.octets("request", 100, mistakes), given.octets("response", 100, mistakes));
            let (client, server) =
                builtin::exchange(name, request, response, given.number("count", 1, mistakes))?;
            Ends { client, server, port: 7 }
        }
        "https-like" => of(builtin::https_like(given.octets("body", 32 << 10, mistakes))),
        "smtp" => of(builtin::smtp(given.octets("letter", 20 << 10, mistakes))),
        "sip" => of(builtin::sip(given.time("talk", Nanos(2 * Nanos::SECOND.0), mistakes))),
        "rtp" => of(builtin::rtp(given.number("packets", 250, mistakes))),
        "smb-like" => of(builtin::smb_like(given.number("blocks", 8, mistakes))),
        "oracle-like" => of(builtin::oracle_like(given.number("statements", 20, mistakes))),
        "citrix-like" => of(builtin::citrix_like(given.number("keys", 50, mistakes))),
        "video" => {
            let (chunks, chunk) =
                (given.number("chunks", 4, mistakes), given.octets("chunk", 1 << 20, mistakes));
            of(builtin::video(
                chunks,
                chunk,
                given.time("pause", Nanos(2 * Nanos::SECOND.0), mistakes),
            ))
        }
        name => return Ok(builtin::application(library_name(name)).map(of)),
    }))
}

fn http(given: &Given<'_>, mistakes: &mut Mistakes<'_>) -> Result<Option<Ends>, ProgramError> {
    let (mut client, mut port) = (HttpClient::default(), 80);
    if let Some(url) = given.of("url") {
        match HttpClient::from_url(&url.text) {
            Some(found) => (client, port) = found,
            None => {
                let says = format!("{:?} is no URL", url.text);
                mistakes.note(
                    url,
                    &says,
                    "expected http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH",
                );
            }
        }
    }
    client.post = given.of("post").map(|_| given.octets("post", 0, mistakes));
    client.requests = given.number("requests", 1, mistakes);
    client.pipeline = given.number("pipeline", 1, mistakes);
    for (name, asked, needed) in [
        ("pipeline", client.pipeline, client.pipeline),
        ("think", u32::from(given.of("think").is_some()) * 2, 2),
    ] {
        if let Some(said) = given.of(name).filter(|_| asked > client.requests) {
            let says = format!("options.{name} has no effect with requests = {}", client.requests);
            mistakes.note(said, &says, &format!("try requests = {needed} or more"));
        }
    }
    if let Some(said) = given.of("think") {
        match format!("delay {}", said.text).parse() {
            Ok(Instruction::Delay(delay)) => client.think = Some(delay),
            _ => {
                let says = format!("{:?} is not a delay", said.text);
                mistakes.note(
                    said,
                    &says,
                    "try \"10 ms\", \"uniform 1 ms 5 ms\" or \"exponential 10 ms\"",
                );
            }
        }
    }
    client.within = given.of("within").map(|_| given.time("within", Nanos::ZERO, mistakes));
    if let Some(said) = given.of("close") {
        mistakes.truth(said, &mut client.close);
    }
    let body = given.octets("body", 100, mistakes);
    let client: Program = client.program("http")?;
    Ok(Some(Ends { client, server: builtin::http_server("http", body)?, port }))
}

/// What was said of an application.
struct Given<'a> {
    options: &'a [(String, Said)],
}

impl Given<'_> {
    fn of(&self, name: &str) -> Option<&Said> {
        self.options.iter().find(|(option, _)| option == name).map(|(_, said)| said)
    }

    fn octets(&self, name: &str, default: u32, mistakes: &mut Mistakes<'_>) -> u32 {
        let Some(said) = self.of(name) else { return default };
        let octets = parse_octets(&said.text).ok().and_then(|n| u32::try_from(n).ok());
        octets.unwrap_or_else(|| {
            mistakes.note(
                said,
                &format!("{:?} is no number of octets", said.text),
                "try 100 or \"32 KiB\"",
            );
            default
        })
    }

    fn number(&self, name: &str, default: u32, mistakes: &mut Mistakes<'_>) -> u32 {
        let Some(said) = self.of(name) else { return default };
        let number = said.text.parse().ok().filter(|n| *n > 0);
        number.unwrap_or_else(|| {
            mistakes.note(said, &format!("{:?} is no number above 0", said.text), "try 10");
            default
        })
    }

    fn time(&self, name: &str, default: Nanos, mistakes: &mut Mistakes<'_>) -> Nanos {
        self.of(name).and_then(|said| mistakes.parsed(said, "a time", "\"2 s\"")).unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use squall_profile::Profile;

    use super::*;

    #[test]
    fn each_application_is_built_with_its_defaults() {
        let profile = Profile::default();
        let mut mistakes = Mistakes::of(&profile);
        for (name, _) in OPTIONS {
            assert!(ends(&Said::from(name), &[], &mut mistakes).is_some(), "{name}");
        }
        let shares: u32 = ends(&Said::from("mix"), &[], &mut mistakes)
            .expect("a mix")
            .iter()
            .map(|end| end.0)
            .sum();
        assert_eq!((shares, mistakes.len()), (100, 0));
        // What there is in the library has a name here.
        for name in builtin::NAMES {
            assert!(OPTIONS.iter().any(|(option, _)| library_name(option) == *name), "{name}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_option_is_told() {
        for (name, option, value, told) in [
            ("htpp", "", "", "did you mean \"http\""),
            ("http", "bdy", "1", "did you mean \"body\""),
            ("http", "url", "ftp://x", "expected http://"),
            ("http", "requests", "0", "no number above 0"),
            ("http", "think", "never", "is not a delay"),
            ("rtp", "packets", "x", "no number above 0"),
            ("dns", "body", "1", "it has none"),
        ] {
            let profile = Profile::default();
            let mut mistakes = Mistakes::of(&profile);
            let options = [(option.to_owned(), Said::from(value))];
            let options = if option.is_empty() { &options[..0] } else { &options[..] };
            assert!(ends(&Said::from(name), options, &mut mistakes).is_none(), "{name} {option}");
            let text = mistakes.check().expect_err("something is wrong").to_string();
            assert!(text.contains(told), "{text}");
        }
    }
}
