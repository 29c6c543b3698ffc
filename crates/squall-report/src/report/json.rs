//! The report as indented JSON, as a whole or in parts: the text of a million streams has 290 MB.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use super::{Report, StreamReport};

/// The streams of a report that has none. No other text has this indentation at the start of a
/// line, and strings of JSON have no line breaks.
const NO_STREAMS: &str = "\n  \"streams\": []";
/// Levels of indentation around a stream.
const LEVELS: usize = 2;

impl Report {
    /// The report of a run or of a part as indented JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("a report has string keys and no custom serializers")
    }

    /// The text of [`Report::to_json`] before and after that of the streams, of which there must be
    /// some. Between them is [`streams_to_json`] without its first octet. Takes the streams out
    /// meanwhile.
    pub fn json_around_streams(&mut self) -> (String, String) {
        let streams = std::mem::take(&mut self.streams);
        let others = self.to_json();
        self.streams = streams;
        let (before, after) = others.split_once(NO_STREAMS).expect("each report has its streams");
        (format!("{before}\n  \"streams\": ["), format!("\n  ]{after}"))
    }
}

/// The text of `streams` within that of their report, each after a comma and a line break.
pub fn streams_to_json(streams: &[StreamReport]) -> Vec<u8> {
    let mut text = Vec::with_capacity(streams.len() * 320);
    for stream in streams {
        let formatter = Indented { depth: LEVELS, has_value: true };
        text.extend_from_slice(formatter.line(false));
        stream
            .serialize(&mut Serializer::with_formatter(&mut text, formatter))
            .expect("a stream has string keys, and memory takes any text");
    }
    text
}

/// The indentation of [`serde_json::ser::PrettyFormatter`], which writes each level of each line
/// apart; here they are one piece.
struct Indented {
    depth: usize,
    has_value: bool,
}

/// The end of a line, and the start of the next at the deepest level of a stream.
const LINE: &[u8] = b",\n                                        ";

impl Indented {
    fn line(&self, first: bool) -> &'static [u8] {
        &LINE[usize::from(first)..2 + 2 * self.depth]
    }

    fn end<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_value {
            out.write_all(self.line(true))?;
        }
        out.write_all(bracket)
    }

    fn begin<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        (self.depth, self.has_value) = (self.depth + 1, false);
        out.write_all(bracket)
    }
}

impl Formatter for Indented {
    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        out.write_all(self.line(first))
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        out.write_all(self.line(first))
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample;

    #[test]
    fn a_report_in_parts_has_the_text_of_the_whole() {
        for streams in [1, 3] {
            let mut report = sample::report(streams);
            let before = report.clone();
            let (begin, end) = report.json_around_streams();
            assert!(report == before);
            let (first, last) = report.streams.split_at(streams / 2);
            let streams = [streams_to_json(first), streams_to_json(last)].concat();
            let streams = String::from_utf8(streams).unwrap();
            assert!(begin + &streams[1..] + &end == report.to_json());
        }
    }
}
