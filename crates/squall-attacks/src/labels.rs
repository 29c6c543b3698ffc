//! Labels: the ground truth of the traffic sent, used to score an engine's alerts.
//!
//! Labels are written as CSV (RFC 4180, with a header) or JSONL (one object per line), and read
//! from either. [`COLUMNS`] lists the fields of both.

use std::{
    io::{self, BufRead, Write},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};
use squall_units::Nanos;

use crate::{
    csv::{self, Field, Lines, NoLine},
    log_time,
};

/// The ground truth of one conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// Number of the attack within its run, from 0.
    pub attack: u64,
    /// Times of the first and the last frame. Like the times of the capture, they count from the
    /// start of the run or from 1970.
    #[serde(rename = "begin_ns", with = "nanoseconds")]
    pub begin: Nanos,
    #[serde(rename = "end_ns", with = "nanoseconds")]
    pub end: Nanos,
    /// Protocol number of the IP header.
    pub protocol: u8,
    /// Address of the client.
    pub source: IpAddr,
    pub source_port: u16,
    pub destination: IpAddr,
    pub destination_port: u16,
    pub kind: Kind,
    /// Generator ID of the rule. 0 (together with sid 0) for traffic that has no rule, such as
    /// scans and floods.
    pub gid: u32,
    pub sid: u32,
    pub rev: u32,
    pub msg: String,
    /// Other rules that must match, such as setters of flowbits that raise alerts themselves.
    #[serde(default)]
    pub also: Vec<u32>,
    /// Number of alerts owed. 0 for near misses and benign traffic.
    pub alerts: u32,
    pub frames: u32,
    /// Name of the scenario. Empty for an attack from a rule.
    #[serde(default)]
    pub name: String,
    /// For a near miss, its difference from the attack.
    #[serde(default)]
    pub note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Attack,
    /// It differs from an attack in one octet, so its rule must not raise an alert.
    NearMiss,
    Benign,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Attack, Kind::NearMiss, Kind::Benign];

    /// `attack`, `near_miss`, `benign`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Attack => "attack",
            Kind::NearMiss => "near_miss",
            Kind::Benign => "benign",
        }
    }
}

/// File format of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv,
    Jsonl,
}

/// Name and content of each CSV column. JSONL has the same names, except that `begin_ns` and
/// `end_ns` are integers in nanoseconds, and `also` is a list.
pub const COLUMNS: [(&str, &str); 18] = [
    ("attack", "Number of the attack in its run, from 0"),
    (
        "begin",
        "Time of its first frame: seconds with nine decimals, since the epoch or the run's start",
    ),
    ("end", "Time of its last frame, in the form of begin"),
    ("protocol", "Protocol of the IP header: 6 TCP, 17 UDP, 1 ICMP, 58 ICMPv6"),
    ("source", "The client's address"),
    ("source_port", "The client's port, 0 if there is none"),
    ("destination", "The server's address"),
    ("destination_port", "The server's port, 0 if there is none"),
    ("kind", "attack, near_miss (differs in one octet, its rule must not alert) or benign"),
    ("gid", "Generator of the rule, 0 if it was made without a rule"),
    ("sid", "The rule, 0 if it was made without a rule"),
    ("rev", "Revision of the rule"),
    ("msg", "Message of the rule"),
    ("also", "Other sids whose alerts are expected in it, separated by blanks"),
    ("alerts", "Alerts of the rule that an engine must raise"),
    ("frames", "Frames of the conversation, in both directions"),
    ("name", "The scenario to which it belongs"),
    ("note", "For a near miss: the option that was broken, and how"),
];

/// Writes labels.
pub struct Writer<W> {
    to: W,
    format: Format,
}

impl<W: Write> Writer<W> {
    /// Writes the header line if the format has one.
    pub fn new(mut to: W, format: Format) -> io::Result<Self> {
        if format == Format::Csv {
            csv::write(&mut to, &COLUMNS.map(|(name, _)| name))?;
        }
        Ok(Writer { to, format })
    }

    pub fn write(&mut self, label: &Label) -> io::Result<()> {
        match self.format {
            Format::Jsonl => {
                serde_json::to_writer(&mut self.to, label)?;
                self.to.write_all(b"\n")
            }
            Format::Csv => {
                let l = label;
                let also: Vec<String> = l.also.iter().map(u32::to_string).collect();
                let fields = [
                    &l.attack.to_string(),
                    &log_time::print_seconds(l.begin),
                    &log_time::print_seconds(l.end),
                    &l.protocol.to_string(),
                    &l.source.to_string(),
                    &l.source_port.to_string(),
                    &l.destination.to_string(),
                    &l.destination_port.to_string(),
                    l.kind.name(),
                    &l.gid.to_string(),
                    &l.sid.to_string(),
                    &l.rev.to_string(),
                    &l.msg,
                    &also.join(" "),
                    &l.alerts.to_string(),
                    &l.frames.to_string(),
                    &l.name,
                    &l.note,
                ];
                csv::write(&mut self.to, &fields)
            }
        }
    }

    /// The underlying writer.
    pub fn into_inner(self) -> W {
        self.to
    }
}

/// The reason why a line is not a label.
#[derive(Debug, thiserror::Error)]
#[error("{line}:{column}: {text}")]
pub struct Error {
    /// Line number, from 1.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: usize,
    /// The text that was found, and the expected text.
    pub text: String,
}

/// Reads labels. Detects the format from the first line. Continues after an error in a line, but
/// not after an error in the header or of the underlying reader.
pub struct Reader<R> {
    lines: Lines<R>,
    state: State,
}

enum State {
    Begin,
    Jsonl,
    /// For each column of the file, its index in [`COLUMNS`].
    Csv(Vec<usize>),
    End,
}

impl<R: BufRead> Reader<R> {
    pub fn new(input: R) -> Self {
        Reader { lines: Lines::new(input), state: State::Begin }
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Label, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // JSON escapes line ends in strings, and a CSV header contains none, so one line is
            // enough.
            let text = match self.state {
                State::End => return None,
                State::Begin | State::Jsonl => self.lines.next(),
                State::Csv(_) => self.lines.record(),
            };
            let text = match text? {
                Ok(text) => text.to_string(),
                Err(NoLine::Unreadable(found)) => {
                    let text = format!("{found}, expected a label");
                    return Some(Err(Error { line: self.lines.line, column: 1, text }));
                }
                Err(NoLine::Input(e)) => {
                    self.state = State::End;
                    return Some(Err(Error {
                        line: self.lines.line + 1,
                        column: 1,
                        text: e.to_string(),
                    }));
                }
            };
            let error = |column, text| Error { line: self.lines.line, column, text };
            if text.trim().is_empty() {
                continue;
            }
            match &self.state {
                State::Begin if text.trim_start().starts_with('{') => {
                    self.state = State::Jsonl;
                    return Some(json(&text).map_err(|(column, text)| error(column, text)));
                }
                State::Begin => match header(text.trim_start_matches('\u{feff}')) {
                    Ok(columns) => self.state = State::Csv(columns),
                    Err((column, text)) => {
                        let error = error(column, text);
                        self.state = State::End;
                        return Some(Err(error));
                    }
                },
                State::Jsonl => {
                    return Some(json(&text).map_err(|(column, text)| error(column, text)));
                }
                State::Csv(columns) => {
                    return Some(
                        record(&text, columns).map_err(|(column, text)| error(column, text)),
                    );
                }
                State::End => unreachable!("the end gave none"),
            }
        }
    }
}

fn json(text: &str) -> Result<Label, (usize, String)> {
    serde_json::from_str(text).map_err(|e| {
        let text = e.to_string();
        // serde_json parses a single line, so its line number is always 1.
        let text = text.split(" at line ").next().unwrap_or(&text).to_string();
        (e.column().max(1), format!("{text}, expected an object with the fields of a label"))
    })
}

/// Parses the header. Columns may be in any order. Columns that derive from others may be missing.
fn header(text: &str) -> Result<Vec<usize>, (usize, String)> {
    let fields = csv::fields(text, ',').map_err(|e| (e.column, e.text))?;
    let mut columns = vec![];
    for Field { text, column } in &fields {
        let Some(at) = COLUMNS.iter().position(|(name, _)| *name == text.trim()) else {
            let names = COLUMNS.map(|(name, _)| name).join(",");
            return Err((
                *column,
                format!("found column {text:?}, expected a header line of {names}"),
            ));
        };
        if columns.contains(&at) {
            return Err((*column, format!("found column {:?} twice", text.trim())));
        }
        columns.push(at);
    }
    let needed = COLUMNS.iter().position(|(name, _)| {
        !["also", "name", "note", "msg", "rev", "frames"].contains(name) && {
            !columns.iter().any(|&at| COLUMNS[at].0 == *name)
        }
    });
    match needed {
        Some(at) => Err((1, format!("the header has no column {:?}", COLUMNS[at].0))),
        None => Ok(columns),
    }
}

fn record(text: &str, columns: &[usize]) -> Result<Label, (usize, String)> {
    let fields = csv::fields(text, ',').map_err(|e| (e.column, e.text))?;
    if fields.len() != columns.len() {
        let column = fields.get(columns.len()).or(fields.last()).map_or(1, |f| f.column);
        return Err((
            column,
            format!("found {} fields, expected {} as in the header", fields.len(), columns.len()),
        ));
    }
    let no_address = IpAddr::from([0; 4]);
    let mut label = Label {
        attack: 0,
        begin: Nanos::ZERO,
        end: Nanos::ZERO,
        protocol: 0,
        source: no_address,
        source_port: 0,
        destination: no_address,
        destination_port: 0,
        kind: Kind::Benign,
        gid: 0,
        sid: 0,
        rev: 0,
        msg: String::new(),
        also: vec![],
        alerts: 0,
        frames: 0,
        name: String::new(),
        note: String::new(),
    };
    for (field, &at) in fields.iter().zip(columns) {
        match COLUMNS[at].0 {
            "attack" => label.attack = number(field)?,
            "begin" => label.begin = time(field)?,
            "end" => label.end = time(field)?,
            "protocol" => label.protocol = number(field)?,
            "source" => label.source = address(field)?,
            "source_port" => label.source_port = number(field)?,
            "destination" => label.destination = address(field)?,
            "destination_port" => label.destination_port = number(field)?,
            "kind" => {
                let kind = Kind::ALL.into_iter().find(|kind| kind.name() == field.text.trim());
                label.kind = kind.ok_or_else(|| expected(field, "attack, near_miss or benign"))?;
            }
            "gid" => label.gid = number(field)?,
            "sid" => label.sid = number(field)?,
            "rev" => label.rev = number(field)?,
            "msg" => label.msg = csv::plain(&field.text).to_owned(),
            "also" => {
                let sids = field.text.split_whitespace().map(str::parse).collect::<Result<_, _>>();
                label.also = sids.map_err(|_| expected(field, "sids separated by blanks"))?;
            }
            "alerts" => label.alerts = number(field)?,
            "frames" => label.frames = number(field)?,
            "name" => label.name = csv::plain(&field.text).to_owned(),
            "note" => label.note = csv::plain(&field.text).to_owned(),
            other => unreachable!("{other} is in COLUMNS, but is not read"),
        }
    }
    Ok(label)
}

fn expected(field: &Field, what: &str) -> (usize, String) {
    (field.column, format!("found {:?}, expected {what}", field.text))
}

fn number<T: std::str::FromStr + Bounded>(field: &Field) -> Result<T, (usize, String)> {
    field
        .text
        .trim()
        .parse()
        .map_err(|_| expected(field, &format!("a number from 0 to {}", T::MOST)))
}

/// The maximum value of an integer type, for messages.
trait Bounded {
    const MOST: u64;
}

impl Bounded for u8 {
    const MOST: u64 = Self::MAX as u64;
}
impl Bounded for u16 {
    const MOST: u64 = Self::MAX as u64;
}
impl Bounded for u32 {
    const MOST: u64 = Self::MAX as u64;
}
impl Bounded for u64 {
    const MOST: u64 = Self::MAX;
}

fn time(field: &Field) -> Result<Nanos, (usize, String)> {
    log_time::instant(&field.text, None).ok_or_else(|| {
        expected(field, "seconds such as 1700000000.123456789, or 2023-11-14T22:13:20Z")
    })
}

fn address(field: &Field) -> Result<IpAddr, (usize, String)> {
    field.text.trim().parse().map_err(|_| expected(field, "an address"))
}

mod nanoseconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use squall_units::Nanos;

    pub(super) fn serialize<S: Serializer>(at: &Nanos, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(at.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Nanos, D::Error> {
        u64::deserialize(from).map(Nanos)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn label() -> Label {
        Label {
            attack: 3,
            begin: Nanos(1_700_000_000_000_000_001),
            end: Nanos(1_700_000_001_500_000_000),
            protocol: 6,
            source: "192.168.0.2".parse().unwrap(),
            source_port: 40_000,
            destination: "2001:db8::1".parse().unwrap(),
            destination_port: 80,
            kind: Kind::NearMiss,
            gid: 1,
            sid: 1_000_001,
            rev: 2,
            msg: "SERVER \"quoted\", with a comma".into(),
            also: vec![7, 8],
            alerts: 0,
            frames: 12,
            name: String::new(),
            note: "content: octet 3".into(),
        }
    }

    fn written(labels: &[Label], format: Format) -> String {
        let mut writer = Writer::new(vec![], format).unwrap();
        for label in labels {
            writer.write(label).unwrap();
        }
        String::from_utf8(writer.into_inner()).unwrap()
    }

    #[test]
    fn a_label_is_a_line_of_csv() {
        let expected = "attack,begin,end,protocol,source,source_port,destination,destination_port,kind,gid,sid,rev,msg,also,\
                        alerts,frames,name,note\n\
                        3,1700000000.000000001,1700000001.500000000,6,192.168.0.2,40000,2001:db8::1,80,near_miss,1,1000001,2,\
                        \"SERVER \"\"quoted\"\", with a comma\",7 8,0,12,,content: octet 3\n";
        assert_eq!(written(&[label()], Format::Csv), expected);
    }

    #[test]
    fn a_label_is_a_line_of_json() {
        let expected = "{\"attack\":3,\"begin_ns\":1700000000000000001,\"end_ns\":1700000001500000000,\"protocol\":6,\
                        \"source\":\"192.168.0.2\",\"source_port\":40000,\"destination\":\"2001:db8::1\",\
                        \"destination_port\":80,\"kind\":\"near_miss\",\"gid\":1,\"sid\":1000001,\"rev\":2,\
                        \"msg\":\"SERVER \\\"quoted\\\", with a comma\",\"also\":[7,8],\"alerts\":0,\"frames\":12,\
                        \"name\":\"\",\"note\":\"content: octet 3\"}\n";
        assert_eq!(written(&[label()], Format::Jsonl), expected);
    }

    #[test]
    fn a_bad_line_is_reported_with_its_position_and_the_next_is_read() {
        let mut text = written(&[label(), label(), label()], Format::Csv);
        let second = text.match_indices("near_miss").nth(1).unwrap().0;
        text.replace_range(second..second + 4, "nigh");
        let read: Vec<_> = Reader::new(text.as_bytes()).collect();
        assert_eq!(read.len(), 3);
        assert_eq!(
            read[1].as_ref().unwrap_err().to_string(),
            "3:80: found \"nigh_miss\", expected attack, near_miss or benign"
        );
        assert_eq!(read[2].as_ref().unwrap(), &label());

        let text = written(&[label(), label()], Format::Jsonl).replacen(
            "\"protocol\":6",
            "\"protocol\":600",
            1,
        );
        let read: Vec<_> = Reader::new(text.as_bytes()).collect();
        let error = read[0].as_ref().unwrap_err();
        assert_eq!((error.line, error.column > 60), (1, true), "{error}");
        assert_eq!(read[1].as_ref().unwrap(), &label());
    }

    #[test]
    fn a_bad_header_is_reported_once() {
        for (text, expected) in [
            ("sid,src\n1,2\n", "1:5: found column \"src\""),
            ("sid,sid\n", "1:5: found column \"sid\" twice"),
            ("sid\n", "1:1: the header has no column \"attack\""),
        ] {
            let read: Vec<_> = Reader::new(text.as_bytes()).collect();
            assert_eq!(read.len(), 1);
            let error = read[0].as_ref().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn columns_may_be_in_any_order_and_times_in_iso() {
        let text = "sid,attack,end,begin,protocol,source,source_port,destination,destination_port,kind,gid,alerts\n\n\
                    5,0,2023-11-14T22:13:21Z,1700000000,17,::1,1,::2,2,attack,1,1\n";
        let label = Reader::new(text.as_bytes()).next().unwrap().unwrap();
        assert_eq!(
            (label.sid, label.begin.0, label.end.0),
            (5, 1_700_000_000_000_000_000, 1_700_000_001_000_000_000)
        );
    }

    proptest! {
        #[test]
        fn written_records_read_back(
            (attack, begin, end) in any::<(u64, u64, u64)>(),
            (protocol, source_port, destination_port) in any::<(u8, u16, u16)>(),
            (source, destination) in any::<(IpAddr, IpAddr)>(),
            kind in 0..3usize,
            (gid, sid, rev, alerts, frames) in any::<(u32, u32, u32, u32, u32)>(),
            also in prop::collection::vec(any::<u32>(), 0..3),
            (msg, name, note) in ("\\PC{0,20}", "[ -~\r\n]{0,20}", "[\"', \n]{0,5}"),
            jsonl in any::<bool>(),
        ) {
            let label = Label {
                attack, begin: Nanos(begin), end: Nanos(end), protocol, source, source_port, destination, destination_port,
                kind: Kind::ALL[kind], gid, sid, rev, msg, also, alerts, frames, name, note,
            };
            let text = written(&[label.clone(), label.clone()], if jsonl { Format::Jsonl } else { Format::Csv });
            let read: Vec<_> = Reader::new(text.as_bytes()).map(Result::unwrap).collect();
            prop_assert_eq!(read, [label.clone(), label]);
        }
    }
}
