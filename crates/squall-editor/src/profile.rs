//! Checks profiles without opening a port, and reports each error with its position; converts
//! profiles.

use std::{io, path::Path};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall::{Error, Planned, Session};
use squall_profile::{At, Format, Profile};
use squall_report::render::human;
use squall_units::L1_OVERHEAD;

use super::Problem;

/// A profile in its original notation.
#[derive(Clone, Copy, Debug)]
pub enum Written<'a> {
    Text(&'a str, Format),
    /// A profile that is not text, so problems have no line numbers.
    Value(&'a serde_json::Value),
}

/// The directory of a profile's files, and rules for reading them.
#[derive(Clone, Copy)]
pub struct FileAccess<'a> {
    /// Directory for relative file names.
    pub folder: &'a Path,
    /// Called before a list of values is read. An error rejects the file, and gives the reason.
    pub may_read: &'a (dyn Fn(&Path) -> Result<(), String> + Sync),
    /// Called before any file that the profile names is read.
    pub may_use: &'a (dyn Fn(&Profile) -> Result<(), Problem> + Sync),
    /// Whether the result is no longer needed. If so, the work ends soon, with a problem.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl FileAccess<'_> {
    /// Allows all files, relative to the working directory.
    pub fn here() -> Self {
        Self {
            folder: Path::new(""),
            may_read: &|_| Ok(()),
            may_use: &|_| Ok(()),
            is_cancelled: &|| false,
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    pub ok: bool,
    /// In the order of the text.
    pub problems: Vec<Problem>,
    /// The profile as in the schema of profiles, each value as a person would write it; absent if
    /// it cannot be read.
    pub profile: Option<serde_json::Value>,
    /// A summary in one line.
    pub summary: String,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// A format that a profile can be converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum To {
    Toml,
    Yaml,
    Json,
    /// Code that makes the profile with the package `squall`.
    Python,
}

/// Checks a profile without opening a port: a port's limits are those of its interface. Attacks are
/// parsed but not solved.
///
/// ```
/// use squall::Format;
/// use squall_editor::{FileAccess, Written, check};
///
/// let text = "[ports]\nA = \"loop:0\"\n[[stream]]\npacket = \"eth/ipv4/udp\"\nrate = \"1 Mpp\"\n";
/// let checked = check(Written::Text(text, Format::Toml), FileAccess::here());
/// assert_eq!((checked.problems[0].line, checked.problems[0].path.as_str()), (5, "stream[0].rate"));
/// assert!(check(Written::Text(&text.replace("Mpp", "Mpps"), Format::Toml), FileAccess::here()).ok);
/// ```
pub fn check(written: Written<'_>, around: FileAccess<'_>) -> Checked {
    let profile = match read(written, around) {
        Ok(profile) => profile,
        Err(problems) => return Checked { problems, ..Checked::default() },
    };
    let mut checked = Checked { ok: true, profile: Some(profile.to_value()), ..Checked::default() };
    match planned(written, around) {
        Ok(planned) => {
            checked.summary = summary(&profile, &planned);
            checked.notes = planned.plan.notes;
        }
        Err(problems) => (checked.ok, checked.problems) = (false, problems),
    }
    checked
}

/// Parses a profile. File names in it stay as written.
///
/// # Errors
/// All errors, each with its position.
pub fn read(written: Written<'_>, around: FileAccess<'_>) -> Result<Profile, Vec<Problem>> {
    parse(written, around, "")
}

/// Like [`read`], but converts file names to be relative to the working directory of Squall, so the
/// profile can be planned or run.
///
/// # Errors
/// All errors, each with its position; a file that must not be read.
pub fn read_to_run(written: Written<'_>, around: FileAccess<'_>) -> Result<Profile, Vec<Problem>> {
    let origin = around.folder.join("profile");
    let profile = parse(written, around, &origin.to_string_lossy())?;
    (around.may_use)(&profile).map_err(|problem| vec![problem])?;
    Ok(profile)
}

/// Plans a profile without opening a port.
///
/// # Errors
/// All errors, each with its position.
pub fn planned(written: Written<'_>, around: FileAccess<'_>) -> Result<Planned, Vec<Problem>> {
    let profile = read_to_run(written, around)?;
    let places = places(&profile);
    let planned = Session::new(profile).check_unless(around.is_cancelled);
    planned.map_err(|error| without_lines(written, problems(error, &places)))
}

/// Plans a profile and formats the plan as text, with the first `frames` frames decoded, and notes
/// for the user. Opens no port.
///
/// # Errors
/// All errors, each with its position.
pub fn plan_text(
    written: Written<'_>,
    around: FileAccess<'_>,
    frames: usize,
) -> Result<(String, Vec<String>), Vec<Problem>> {
    let profile = read(written, around)?;
    let planned = planned(written, around)?;
    let frames = squall_plan::explain::preview(&planned.plan, frames);
    Ok((planned.text(&profile, &frames, false), planned.plan.notes))
}

/// Converts a profile to another format.
///
/// ```
/// use squall::Format;
/// use squall_editor::{FileAccess, To, Written, convert};
///
/// let text = "ports: {A: loop:0}\nstream: [{packet: eth/ipv4/udp, rate: 1 kpps}]\n";
/// let python = convert(Written::Text(text, Format::Yaml), FileAccess::here(), To::Python).unwrap();
/// assert!(python.contains("packet=\"eth/ipv4/udp\""), "{python}");
/// ```
///
/// # Errors
/// All errors, each with its position.
pub fn convert(
    written: Written<'_>,
    around: FileAccess<'_>,
    to: To,
) -> Result<String, Vec<Problem>> {
    let profile = read(written, around)?;
    Ok(match to {
        To::Toml => profile.to_toml(),
        To::Json => serde_json::to_string_pretty(&profile.to_value()).unwrap_or_default() + "\n",
        To::Yaml => super::yaml::yaml(&profile.to_value()),
        To::Python => super::python::python(&profile),
    })
}

/// Maximum size of a list of values, in octets.
const MAX_OCTETS: u64 = 64 << 20;

fn parse(
    written: Written<'_>,
    around: FileAccess<'_>,
    origin: &str,
) -> Result<Profile, Vec<Problem>> {
    if (around.is_cancelled)() {
        return Err(vec![Problem::new("nobody waits for the result any more", "")]);
    }
    let files = |path: &Path| {
        let path = if origin.is_empty() { around.folder.join(path) } else { path.to_owned() };
        (around.may_read)(&path).map_err(io::Error::other)?;
        if std::fs::metadata(&path)?.len() > MAX_OCTETS {
            return Err(io::Error::other("it has more than 64 MiB"));
        }
        std::fs::read_to_string(path)
    };
    let origin = if origin.is_empty() { "profile" } else { origin };
    let parsed = match written {
        Written::Text(text, format) => Profile::parse_with(text, origin, format, &files),
        // Converted to text, in which each value has a position.
        Written::Value(value) => {
            let text = serde_json::to_string_pretty(value).unwrap_or_default();
            Profile::parse_with(&text, origin, Format::Json, &files)
        }
    };
    parsed.map_err(|mistakes| {
        without_lines(written, mistakes.0.into_iter().map(Problem::from).collect())
    })
}

fn without_lines(written: Written<'_>, mut problems: Vec<Problem>) -> Vec<Problem> {
    if matches!(written, Written::Value(_)) {
        problems.iter_mut().for_each(|problem| (problem.line, problem.column) = (0, 0));
    }
    problems
}

fn problems(error: Error, places: &[(At, String)]) -> Vec<Problem> {
    match error {
        Error::Input(mistakes) => mistakes
            .0
            .into_iter()
            .map(|mistake| {
                let place = At { line: mistake.line, column: mistake.column };
                at(places, place, Problem::from(mistake))
            })
            .collect(),
        other => {
            let text = other.to_string();
            let mut lines = text.lines().map(|line| line.trim().to_owned());
            let message = lines.next().unwrap_or_default();
            vec![Problem { message, details: lines.collect(), ..Problem::default() }]
        }
    }
}

/// Adds position and path to a problem.
fn at(places: &[(At, String)], at: At, mut problem: Problem) -> Problem {
    if problem.path.is_empty()
        && let Some((_, path)) = places.iter().find(|(place, _)| *place == at && at.line > 0)
    {
        problem.path.clone_from(path);
    }
    (problem.line, problem.column) = (at.line, at.column);
    problem
}

/// Positions of the profile's values, the most specific ones first.
fn places(profile: &Profile) -> Vec<(At, String)> {
    let mut places = Vec::new();
    let mut put = |at: At, path: String| places.push((at, path));
    for (i, stream) in profile.streams.iter().enumerate() {
        let of = |what: &str| format!("stream[{i}].{what}");
        let packet = match &stream.packet {
            squall_profile::PacketSource::Layers(_) => "packet",
            squall_profile::PacketSource::Octets(_) => "hex",
            squall_profile::PacketSource::Capture { .. } => "pcap",
        };
        put(stream.packet_at, of(packet));
        put(stream.size_at, of("size"));
        put(stream.segment_at, of("segment"));
        put(stream.rate_at, of("rate"));
        stream
            .vary
            .iter()
            .enumerate()
            .for_each(|(j, vary)| put(vary.at, format!("stream[{i}].vary[{j}]")));
        put(stream.at, format!("stream[{i}]"));
    }
    for port in &profile.ports {
        put(port.at, format!("ports.{}", port.name));
    }
    if let Some(flows) = &profile.flows {
        flows
            .templates
            .iter()
            .enumerate()
            .for_each(|(i, template)| put(template.at, format!("template[{i}]")));
        flows.pools.iter().enumerate().for_each(|(i, pool)| put(pool.at, format!("pool[{i}]")));
    }
    profile
        .replays
        .iter()
        .enumerate()
        .for_each(|(i, replay)| put(replay.at, format!("replay[{i}]")));
    profile
        .attacks
        .iter()
        .enumerate()
        .for_each(|(i, attack)| put(attack.at, format!("attack[{i}]")));
    places
}

/// For example `2 streams on 1 port, 1.5 Mpps, 1.01 Gb/s on the wire, ends after 10 s`.
fn summary(profile: &Profile, planned: &Planned) -> String {
    let some = |n: usize, what: &str| {
        (n > 0).then(|| format!("{n} {what}{}", if n == 1 { "" } else { "s" }))
    };
    let flows = profile.flows.as_ref();
    let what: Vec<String> = [
        some(profile.streams.len(), "stream"),
        some(flows.map_or(0, |flows| flows.templates.len()), "template"),
        flows
            .and_then(|flows| flows.replay.as_ref())
            .map(|_| "the conversations of a capture".to_owned()),
        some(profile.replays.len(), "replay"),
        some(profile.attacks.len(), "attack"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let what = if what.is_empty() { "sends nothing".into() } else { what.join(", ") };
    let mut text = format!(
        "{what} on {}",
        some(profile.ports.len(), "port").unwrap_or_else(|| "no port".into())
    );
    let streams = &planned.plan.streams;
    if let Some(pps) =
        streams.iter().map(|s| s.asked_pps).sum::<Option<f64>>().filter(|pps| *pps > 0.0)
    {
        let wire = |s: &squall_plan::PlanStream| {
            s.asked_pps.unwrap_or(0.0) * 8.0 * (s.mean_len + f64::from(L1_OVERHEAD))
        };
        let bps: f64 = streams.iter().map(wire).sum();
        text += &format!(", {}, {} on the wire", human::si(pps, "pps"), human::si(bps, "b/s"));
    }
    let stop = &planned.plan.stop;
    let ends: Vec<String> = [
        stop.duration.map(|duration| duration.to_string()),
        stop.packets.map(|n| human::counted(n, "frame")),
        stop.octets.map(|n| format!("{} octets", human::count(n))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !ends.is_empty() {
        text += &format!(", ends after {}", ends.join(" or "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of_text(text: &str) -> Checked {
        check(Written::Text(text, Format::Toml), FileAccess::here())
    }

    #[test]
    fn mistakes_found_by_planning_have_a_place_and_a_path() {
        let checked = of_text(
            "[ports]\nA = \"loop:0\"\n\n[[stream]]\nname = \"web\"\npacket = \
             \"eth/ipv4/udp\"\nsize = 64\nrate = \"1 Mpps\"\n[[stream.vary]]\nfield = \
             \"ipv6.src\"\nop = \"increment\"\nmin = 1\nmax = 2\n",
        );
        let problem = &checked.problems[0];
        assert_eq!((problem.line, problem.path.as_str()), (9, "stream[0].vary[0]"), "{problem:?}");
        assert!(!checked.ok && checked.profile.is_some());
        let address = of_text("[ports]\nA = \"lop:0\"\n[[stream]]\npacket = \"eth\"\nrate = 1\n");
        assert_eq!(
            (address.problems[0].line, address.problems[0].path.as_str()),
            (2, "ports.A"),
            "{address:?}"
        );
    }

    #[test]
    fn a_profile_without_text_has_paths_and_no_lines() {
        let value = json!({"ports": {"A": "loop:0"}, "stream": [{"packet": "eth/ipv4/udp", "rate": "1 kpps", "size": 9}]});
        let checked = check(Written::Value(&value), FileAccess::here());
        assert_eq!(checked.problems.len(), 1, "{checked:?}");
        assert_eq!(
            (checked.problems[0].line, checked.problems[0].path.as_str()),
            (0, "stream[0].size")
        );
    }

    #[test]
    fn a_valid_profile_has_a_summary() {
        let checked = of_text(
            "duration = \"2 s\"\n[ports]\nA = \"null:\"\n[[stream]]\npacket = \
             \"eth/ipv4/udp\"\nsize = 64\nrate = \"1 Mpps\"\n",
        );
        assert!(checked.ok, "{:?}", checked.problems);
        assert_eq!(
            checked.summary,
            "1 stream on 1 port, 1.00 Mpps, 672 Mb/s on the wire, ends after 2 s"
        );
        assert_eq!(checked.profile.unwrap()["stream"][0]["size"], 64);
    }

    #[test]
    fn forbidden_files_are_not_read() {
        let problem = || Problem { message: "no".into(), ..Problem::default() };
        let around = FileAccess {
            folder: Path::new("/etc"),
            may_read: &|path| Err(format!("{}: no", path.display())),
            may_use: &|_| Err(problem()),
            is_cancelled: &|| false,
        };
        for stream in [
            "packet = 'eth/ipv4/udp/file(\"/etc/passwd\")'",
            "packet = \"eth/ipv4/udp\"\nvary = [{ field = \"udp.sport\", op = \"file\", path = \
             \"passwd\" }]",
        ] {
            let text = format!("[ports]\nA = \"null:\"\n[[stream]]\nrate = 1\n{stream}\n");
            let checked = check(Written::Text(&text, Format::Toml), around);
            assert_eq!(checked.problems.len(), 1, "{checked:?}");
            assert!(
                !checked.ok && checked.problems[0].message.contains("no"),
                "{stream}: {checked:?}"
            );
        }
    }
}
