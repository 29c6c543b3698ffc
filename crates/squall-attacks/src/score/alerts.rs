//! Reads the alert logs of engines.
//!
//! | format | source |
//! |---|---|
//! | JSON objects, one per line, `"event_type":"alert"` | Suricata's `eve.json` |
//! | JSON objects, one per line, `"rule":"1:1000:0"` | Snort 3's `alert_json` |
//! | `... [**] [1:1000:0] text [**] ... {TCP} a:p -> b:p` | Suricata's `fast.log`, Snort's `alert_fast` |
//! | comma-separated fields with a header | conversions of `unified2` and others: [`NAMES`] |
//! | comma-separated fields without a header | `alert_csv` of Snort 2 and 3 with its default fields |
//! | tab-separated fields with a header | the same names |
//! | `(Event)` and lines of `name: value` | `u2spewfoo` for Snort's `unified2` |

use std::{borrow::Cow, io::BufRead, net::IpAddr};

use serde::Deserialize;
use squall_units::Nanos;

use crate::{
    csv::{self, Lines, NoLine},
    labels::Error,
    log_time,
};

/// An alert as logged by an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Time since 1970, or local time if the log has no UTC offset.
    pub at: Option<Nanos>,
    /// 0 if the log lacks it.
    pub gid: u32,
    pub sid: u32,
    pub rev: u32,
    pub msg: String,
    /// Protocol number in the IP header. `None` if the log has none or the name is unknown.
    pub protocol: Option<u8>,
    /// Unspecified (`0.0.0.0`) if the packet had no address.
    pub source: IpAddr,
    /// 0 if there is none.
    pub source_port: u16,
    pub destination: IpAddr,
    pub destination_port: u16,
    /// Number of alerts that the line represents.
    pub count: u64,
    pub flow: Option<u64>,
    /// The engine's name for the application protocol.
    pub application: Option<String>,
    /// Whether the engine dropped or rejected the packet.
    pub blocked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Fast,
    Csv,
    Tsv,
    U2spewfoo,
}

/// Accepted names for columns and values. The first name in each list is the one used here.
pub const NAMES: [&[&str]; 17] = [
    &["timestamp", "time", "ts", "date"],
    &["seconds", "event_second"],
    &["microseconds", "event_microsecond"],
    &["gid", "sig_generator", "generator_id", "gen_id", "generator"],
    &["sid", "sig_id", "signature_id"],
    &["rev", "sig_rev", "signature_revision", "revision"],
    &["rule"],
    &["msg", "message", "signature"],
    &["proto", "protocol"],
    &["src", "src_ip", "src_addr", "source", "source_ip", "ip_source", "srcip"],
    &["sport", "src_port", "srcport", "source_port", "sport_itype"],
    &[
        "dst",
        "dst_ip",
        "dest_ip",
        "dst_addr",
        "destination",
        "destination_ip",
        "ip_destination",
        "dstip",
    ],
    &["dport", "dst_port", "dstport", "dest_port", "destination_port", "dport_icode"],
    &["src_ap"],
    &["dst_ap"],
    &["count", "alerts"],
    &["action", "blocked"],
];

/// Default fields of Snort 2's and Snort 3's `alert_csv`.
const SNORT2: [&str; 9] = ["timestamp", "gid", "sid", "rev", "msg", "proto", "src", "sport", "dst"];
const SNORT3: [&str; 10] =
    ["timestamp", "", "proto", "", "", "", "src_ap", "dst_ap", "rule", "action"];

/// Reads alerts. Detects the format from the first line. Continues after an error in a line.
pub struct Reader<R> {
    lines: Lines<R>,
    form: Form,
    year: Option<i64>,
    skipped: u64,
}

enum Form {
    Unknown,
    Json,
    Fast,
    /// For each column, its name in [`NAMES`].
    Fields {
        separator: char,
        columns: Vec<Option<&'static str>>,
    },
    /// The event so far, and the line where it starts.
    Spew(Option<(Draft, u64)>),
    End,
}

impl<R: BufRead> Reader<R> {
    pub fn new(input: R) -> Self {
        Reader { lines: Lines::new(input), form: Form::Unknown, year: None, skipped: 0 }
    }

    /// Sets the year for times without one.
    pub fn year(self, year: i64) -> Self {
        Reader { year: Some(year), ..self }
    }

    /// Like [`year`](Self::year), with the year of `at`.
    pub fn year_of(self, at: Nanos) -> Self {
        self.year(log_time::year(at))
    }

    /// The detected format. `None` before the first line, and if the format was not recognized.
    pub fn format(&self) -> Option<Format> {
        match self.form {
            Form::Unknown | Form::End => None,
            Form::Json => Some(Format::Json),
            Form::Fast => Some(Format::Fast),
            Form::Fields { separator: '\t', .. } => Some(Format::Tsv),
            Form::Fields { .. } => Some(Format::Csv),
            Form::Spew(_) => Some(Format::U2spewfoo),
        }
    }

    /// Number of events other than alerts so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Number of lines so far.
    pub fn lines(&self) -> u64 {
        self.lines.line
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Alert, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let text = match self.form {
                Form::End => return None,
                Form::Fields { .. } => self.lines.record(),
                _ => self.lines.next(),
            };
            let text = match text {
                None => {
                    let form = std::mem::replace(&mut self.form, Form::End);
                    let Form::Spew(Some((draft, line))) = form else {
                        self.form = form;
                        return None;
                    };
                    self.form = Form::Spew(None);
                    return Some(draft.alert().map_err(|text| Error { line, column: 1, text }));
                }
                // Some editors write a byte order mark.
                Some(Ok(text)) => text.trim_start_matches('\u{feff}').to_string(),
                Some(Err(NoLine::Unreadable(found))) => {
                    let text = format!("{found}, expected an alert");
                    return Some(Err(Error { line: self.lines.line, column: 1, text }));
                }
                Some(Err(NoLine::Input(e))) => {
                    self.form = Form::End;
                    return Some(Err(Error {
                        line: self.lines.line + 1,
                        column: 1,
                        text: e.to_string(),
                    }));
                }
            };
            if let Form::Unknown = self.form {
                if text.trim().is_empty() {
                    continue;
                }
                self.form = match form(&text) {
                    Some(form) => form,
                    None => {
                        self.form = Form::End;
                        let text = if is_label(&text) {
                            "found labels of attacks, expected alerts: are --labels and --alerts \
                             swapped?"
                        } else {
                            "found no alerts in a known format, expected eve.json, fast.log, \
                             alert_csv, JSON of Snort 3, output of u2spewfoo, or a header line \
                             such as sid,proto,src,sport,dst,dport"
                        };
                        let text = text.to_string();
                        return Some(Err(Error { line: self.lines.line, column: 1, text }));
                    }
                };
                if matches!(self.form, Form::Fields { .. }) && header(&text).is_some() {
                    continue;
                }
            }
            let line = self.lines.line;
            if let Form::Spew(event) = &mut self.form {
                if let Some((draft, line)) = spew(event, &text, line) {
                    return Some(draft.alert().map_err(|text| Error { line, column: 1, text }));
                }
                continue;
            }
            if text.trim().is_empty() {
                continue;
            }
            let read = match &self.form {
                Form::Json => json(&text, self.year),
                Form::Fast => fast(&text, self.year).map(Some),
                Form::Fields { separator, columns } => {
                    record(&text, *separator, columns, self.year).map(Some)
                }
                Form::Unknown | Form::Spew(_) | Form::End => {
                    unreachable!("they were looked at above")
                }
            };
            match read {
                Ok(Some(alert)) => return Some(Ok(alert)),
                Ok(None) => self.skipped += 1,
                Err((column, text)) => return Some(Err(Error { line, column, text })),
            }
        }
    }
}

type Bad = (usize, String);

/// Detects the format from the first line.
fn form(text: &str) -> Option<Form> {
    if is_label(text) {
        return None;
    }
    if text.trim_start().starts_with('{') {
        return Some(Form::Json);
    }
    if text.trim() == "(Event)" {
        return Some(Form::Spew(None));
    }
    if text.split_once("[**]").is_some_and(|(_, rest)| rest.trim_start().starts_with('[')) {
        return Some(Form::Fast);
    }
    if let Some((separator, columns)) = header(text) {
        return Some(Form::Fields { separator, columns });
    }
    let fields = csv::fields(text, ',').ok()?;
    let field = |i: usize| fields.get(i).map_or("", |f| f.text.trim());
    let number = |i: usize| field(i).parse::<u32>().is_ok();
    let mut columns: Vec<Option<&'static str>>;
    if rule(field(8)).is_some() {
        columns = SNORT3.map(|name| Some(name).filter(|name| !name.is_empty())).to_vec();
    } else if number(1) && number(2) && number(3) {
        columns = SNORT2.map(Some).to_vec();
        columns.push(Some("dport"));
    } else {
        return None;
    }
    columns.resize(fields.len().max(columns.len()), None);
    Some(Form::Fields { separator: ',', columns })
}

/// Whether it is a line of a label file. Scoring labels against themselves would give a perfect but
/// meaningless result.
fn is_label(text: &str) -> bool {
    text.starts_with("attack,begin,")
        || text.starts_with("{\"attack\":") && text.contains("\"begin_ns\":")
}

/// The columns if the line is a header, which needs at least the sid and an address.
fn header(text: &str) -> Option<(char, Vec<Option<&'static str>>)> {
    let separator = if text.contains('\t') { '\t' } else { ',' };
    let fields = csv::fields(text, separator).ok()?;
    let columns: Vec<_> = fields.iter().map(|f| named(&f.text)).collect();
    let has = |name| columns.contains(&Some(name));
    ((has("sid") || has("rule")) && (has("src") || has("src_ap"))).then_some((separator, columns))
}

/// Maps a field name in a log to the name used here.
fn named(name: &str) -> Option<&'static str> {
    let name = name.trim().to_ascii_lowercase().replace([' ', '.', '-'], "_");
    NAMES.iter().find(|names| names.contains(&name.as_str())).map(|names| names[0])
}

/// An alert under construction.
#[derive(Default)]
struct Draft {
    alert: Option<Alert>,
    has_sid: bool,
    has_source: bool,
    has_destination: bool,
    seconds: Option<u64>,
    microseconds: u64,
}

impl Draft {
    /// Sets a field. `name` is one of the names used here.
    fn set(&mut self, name: &str, value: &str, year: Option<i64>) -> Result<(), String> {
        let value = value.trim();
        if value.is_empty() {
            return Ok(());
        }
        let alert = self.alert.get_or_insert_with(|| Alert {
            at: None,
            gid: 0,
            sid: 0,
            rev: 0,
            msg: String::new(),
            protocol: None,
            source: NO_ADDRESS,
            source_port: 0,
            destination: NO_ADDRESS,
            destination_port: 0,
            count: 1,
            flow: None,
            application: None,
            blocked: false,
        });
        let number =
            || value.parse::<u32>().map_err(|_| format!("found {value:?}, expected a number"));
        let port = || value.parse::<u16>().map_err(|_| format!("found {value:?}, expected a port"));
        let address =
            || value.parse::<IpAddr>().map_err(|_| format!("found {value:?}, expected an address"));
        let both = |alert: &Alert| {
            ends(value, alert.protocol)
                .ok_or_else(|| format!("found {value:?}, expected an address and a port"))
        };
        match name {
            "timestamp" => alert.at = time(value, year)?,
            "seconds" => {
                self.seconds = Some(
                    value
                        .parse()
                        .map_err(|_| format!("found {value:?}, expected whole seconds"))?,
                );
            }
            "microseconds" => self.microseconds = number()?.into(),
            "gid" => alert.gid = number()?,
            "sid" => (alert.sid, self.has_sid) = (number()?, true),
            "rev" => alert.rev = number()?,
            "rule" => {
                let found =
                    rule(value).ok_or_else(|| format!("found {value:?}, expected gid:sid:rev"))?;
                (alert.gid, alert.sid, alert.rev) = found;
                self.has_sid = true;
            }
            "msg" => alert.msg = value.trim_matches('"').to_string(),
            "proto" => alert.protocol = protocol(value),
            "src" => (alert.source, self.has_source) = (address()?, true),
            // For ICMP, some logs have type and code instead of ports.
            "sport" => alert.source_port = port()?,
            "dst" => (alert.destination, self.has_destination) = (address()?, true),
            "dport" => alert.destination_port = port()?,
            "src_ap" => ((alert.source, alert.source_port), self.has_source) = (both(alert)?, true),
            "dst_ap" => {
                ((alert.destination, alert.destination_port), self.has_destination) =
                    (both(alert)?, true)
            }
            "count" => {
                alert.count =
                    value.parse().map_err(|_| format!("found {value:?}, expected a number"))?
            }
            "action" => alert.blocked = is_blocked(value),
            other => unreachable!("{other} is in NAMES, but is not read"),
        }
        Ok(())
    }

    fn alert(self) -> Result<Alert, String> {
        let lacks = match &self {
            d if !d.has_sid => "sid",
            d if !d.has_source => "source",
            d if !d.has_destination => "destination",
            Draft { alert: Some(alert), .. } => {
                let whole = self
                    .seconds
                    .and_then(|s| s.checked_mul(1_000_000)?.checked_add(self.microseconds));
                let at = whole.and_then(|us| us.checked_mul(1000)).map(Nanos);
                return Ok(Alert { at: at.or(alert.at), ..alert.clone() });
            }
            Draft { .. } => "fields",
        };
        Err(format!("the alert has no {lacks}"))
    }
}

const NO_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// Parses a time. Returns `None` if the year is neither in the text nor given.
fn time(text: &str, year: Option<i64>) -> Result<Option<Nanos>, String> {
    // Parse it with any leap year, to check whether the text is a date.
    match log_time::instant(text, year) {
        None if year.is_none() && log_time::instant(text, Some(2024)).is_some() => Ok(None),
        None => Err(format!("found {text:?}, expected a time")),
        at => Ok(at),
    }
}

fn record(
    text: &str,
    separator: char,
    columns: &[Option<&str>],
    year: Option<i64>,
) -> Result<Alert, Bad> {
    let fields = csv::fields(text, separator).map_err(|e| (e.column, e.text))?;
    // Snort omits trailing fields that the packet lacks.
    if fields.len() > columns.len() {
        let column = fields[columns.len()].column;
        return Err((
            column,
            format!("found {} fields, expected at most {}", fields.len(), columns.len()),
        ));
    }
    let mut draft = Draft::default();
    for (field, name) in fields.iter().zip(columns) {
        if let Some(name) = name {
            draft.set(name, &field.text, year).map_err(|text| (field.column, text))?;
        }
    }
    draft.alert().map_err(|text| (1, text))
}

/// The relevant fields of eve.json. Serde skips all others without copying them.
#[derive(Deserialize)]
struct Eve<'a> {
    #[serde(borrow)]
    event_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    src_ip: Option<Cow<'a, str>>,
    src_port: Option<serde_json::Value>,
    #[serde(borrow)]
    dest_ip: Option<Cow<'a, str>>,
    dest_port: Option<serde_json::Value>,
    #[serde(borrow)]
    proto: Option<Cow<'a, str>>,
    flow_id: Option<u64>,
    #[serde(borrow)]
    app_proto: Option<Cow<'a, str>>,
    #[serde(borrow)]
    alert: Option<EveAlert<'a>>,
}

#[derive(Deserialize)]
struct EveAlert<'a> {
    #[serde(borrow)]
    action: Option<Cow<'a, str>>,
    gid: Option<u32>,
    signature_id: u32,
    rev: Option<u32>,
    #[serde(borrow)]
    signature: Option<Cow<'a, str>>,
}

/// Parses a line. Returns `None` for an event of another type.
fn json(text: &str, year: Option<i64>) -> Result<Option<Alert>, Bad> {
    let bad = |e: serde_json::Error| {
        let text = e.to_string();
        (e.column().max(1), text.split(" at line ").next().unwrap_or(&text).to_string())
    };
    // Most lines of eve.json are other events, so check the type before parsing.
    match event_type(text) {
        Some("alert") => {}
        Some(_) => return Ok(None),
        None => {
            return snort_json(text, year).map_err(|e| match e {
                Ok(e) => bad(e),
                Err(text) => (1, text),
            });
        }
    }
    let eve: Eve<'_> = serde_json::from_str(text).map_err(bad)?;
    if eve.event_type.as_deref() != Some("alert") {
        return Ok(None);
    }
    let Some(alert) = eve.alert else {
        return Err((1, "an alert has no object \"alert\"".into()));
    };
    let at = match &eve.timestamp {
        Some(text) => time(text, year).map_err(|text| (1, text))?,
        None => None,
    };
    let address = |text: &Option<Cow<'_, str>>| match text {
        Some(text) => text.parse().map_err(|_| (1, format!("found {text:?}, expected an address"))),
        None => Ok(NO_ADDRESS),
    };
    let port = |port: &Option<serde_json::Value>| {
        port.as_ref().and_then(|p| p.as_u64()).unwrap_or(0) as u16
    };
    Ok(Some(Alert {
        at,
        gid: alert.gid.unwrap_or(0),
        sid: alert.signature_id,
        rev: alert.rev.unwrap_or(0),
        msg: alert.signature.unwrap_or_default().into_owned(),
        protocol: eve.proto.and_then(|name| protocol(&name)),
        source: address(&eve.src_ip)?,
        source_port: port(&eve.src_port),
        destination: address(&eve.dest_ip)?,
        destination_port: port(&eve.dest_port),
        count: 1,
        flow: eve.flow_id,
        application: eve.app_proto.map(Cow::into_owned),
        blocked: alert.action.is_some_and(|action| is_blocked(&action)),
    }))
}

/// The value of the first key `event_type`, found without parsing: Suricata writes it early.
fn event_type(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("\"event_type\"")?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    rest.split_once('"').map(|(kind, _)| kind)
}

/// Snort 3's JSON: a flat object with its field names.
fn snort_json(
    text: &str,
    year: Option<i64>,
) -> Result<Option<Alert>, Result<serde_json::Error, String>> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(Ok)?;
    let mut draft = Draft::default();
    // Set the protocol first, because it decides whether there are ports.
    let (mut first, rest): (Vec<_>, Vec<_>) =
        object.iter().partition(|(name, _)| named(name) == Some("proto"));
    first.extend(rest);
    for (name, value) in first {
        let Some(name) = named(name) else { continue };
        let value = match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Number(number) => number.to_string(),
            _ => continue,
        };
        draft.set(name, &value, year).map_err(Err)?;
    }
    draft.alert().map(Some).map_err(Err)
}

fn fast(text: &str, year: Option<i64>) -> Result<Alert, Bad> {
    let column = |part: &str| text.find(part).map_or(1, |at| text[..at].chars().count() + 1);
    let lacks = |what: &str| {
        (
            1,
            format!(
                "found no {what}, expected time [**] [gid:sid:rev] text [**] {{protocol}} a -> b"
            ),
        )
    };
    let (before, rest) = text.split_once("[**]").ok_or_else(|| lacks("[**]"))?;
    // An action such as `[Drop]` may follow the time.
    let (when, mark) = before.split_once('[').unwrap_or((before, ""));
    let at = time(when, year).map_err(|text| (1, text))?;
    let rest = rest.trim_start();
    let (ids, rest) = rest
        .strip_prefix('[')
        .and_then(|r| r.split_once(']'))
        .ok_or_else(|| lacks("[gid:sid:rev]"))?;
    let (gid, sid, rev) =
        rule(ids).ok_or_else(|| (column(ids), format!("found {ids:?}, expected gid:sid:rev")))?;
    // The message may contain anything, but the text after it has no braces.
    let (head, tail) = rest.rsplit_once('{').ok_or_else(|| lacks("{protocol}"))?;
    let msg = head.rsplit_once("[**]").map_or(head, |(msg, _)| msg).trim();
    let (name, pair) = tail.split_once('}').ok_or_else(|| lacks("{protocol}"))?;
    let (source, destination) = pair.split_once("->").ok_or_else(|| lacks("a -> b"))?;
    let protocol = protocol(name);
    let end = |text: &str| {
        let text = text.trim();
        ends(text, protocol).ok_or_else(|| {
            (column(text), format!("found {text:?}, expected an address and a port"))
        })
    };
    let ((source, source_port), (destination, destination_port)) =
        (end(source)?, end(destination)?);
    Ok(Alert {
        at,
        gid,
        sid,
        rev,
        msg: msg.trim_matches('"').to_string(),
        protocol,
        source,
        source_port,
        destination,
        destination_port,
        count: 1,
        flow: None,
        application: None,
        // `wDrop` (would drop) does not count as blocked, because the engine was not inline.
        blocked: is_blocked(mark.trim().trim_end_matches(']')),
    })
}

/// Adds a line to an event. If the line ends the previous event, returns that event.
fn spew(event: &mut Option<(Draft, u64)>, text: &str, line: u64) -> Option<(Draft, u64)> {
    let trimmed = text.trim();
    // `(ExtraDataHdr)`, `Packet` and hexadecimal data are not part of an event.
    if trimmed == "(Event)" {
        return event.replace((Draft::default(), line));
    }
    if !text.starts_with(['\t', ' ']) {
        return event.take();
    }
    if let Some((draft, _)) = event {
        for (name, value) in trimmed.split('\t').filter_map(|part| part.split_once(':')) {
            if let Some(name) = named(name) {
                // Ignore an invalid value. The alert then reports the field as missing.
                let _ = draft.set(name, value, None);
            }
        }
    }
    None
}

/// `gid:sid:rev`.
fn rule(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.trim().split(':').map(|part| part.parse().ok());
    let found = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(found)
}

/// Splits an address and the port after its last colon. An IPv6 address without brackets is written
/// with all eight groups if a port follows. TCP, UDP and SCTP always have a port.
fn ends(text: &str, protocol: Option<u8>) -> Option<(IpAddr, u16)> {
    let text = text.trim();
    if let Some((address, port)) = text.strip_prefix('[').and_then(|t| t.split_once(']')) {
        let port = port.strip_prefix(':').map_or(Some(0), |port| port.parse().ok())?;
        return Some((address.parse().ok()?, port));
    }
    let whole = || text.parse().ok().map(|address| (address, 0));
    let split = || {
        let (address, port) = text.rsplit_once(':')?;
        Some((address.parse().ok()?, port.parse().ok()?))
    };
    match protocol {
        Some(6 | 17 | 132) => split().or_else(whole),
        _ => whole().or_else(split),
    }
}

/// Protocol number by the name in logs.
pub(crate) fn protocol(name: &str) -> Option<u8> {
    let name = name.trim().to_ascii_lowercase();
    // Suricata's form for protocols without a name.
    let number = name.strip_prefix("proto:").unwrap_or(&name);
    Some(match number {
        "icmp" => 1,
        "igmp" => 2,
        "tcp" => 6,
        "udp" => 17,
        "ipv6" => 41,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "ipv6-icmp" | "icmpv6" | "icmp6" => 58,
        "ospf" | "ospfigp" => 89,
        "pim" => 103,
        "sctp" => 132,
        number => return number.parse().ok(),
    })
}

fn is_blocked(action: &str) -> bool {
    matches!(action.to_ascii_lowercase().as_str(), "blocked" | "block" | "drop" | "reject" | "1")
}
