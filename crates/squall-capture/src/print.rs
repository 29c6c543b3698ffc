//! Prints one line per packet.

use std::{
    io::{self, BufWriter, Write},
    str::FromStr,
};

use squall_pcap::{InterfaceFormat, LinkType};

use crate::{record::Placed, time::Civil};

/// How packets are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Print {
    pub stamp: Stamp,
}

/// The time at the start of each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamp {
    /// `20:55:00.000000001`, UTC.
    #[default]
    Clock,
    /// As `Clock`, with the date.
    Date,
    /// Seconds since 1970.
    Epoch,
    /// Seconds since the first packet.
    Relative,
    /// Seconds since the previous packet.
    Delta,
    None,
}

impl Stamp {
    const NAMED: [(&str, Self); 6] = [
        ("clock", Self::Clock),
        ("date", Self::Date),
        ("epoch", Self::Epoch),
        ("relative", Self::Relative),
        ("delta", Self::Delta),
        ("none", Self::None),
    ];
    /// The names accepted by [`FromStr`].
    pub const NAMES: [&str; 6] = {
        let mut names = [""; 6];
        let mut i = 0;
        while i < names.len() {
            names[i] = Self::NAMED[i].0;
            i += 1;
        }
        names
    };
}

impl FromStr for Stamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = Self::NAMED.into_iter().find(|(name, _)| *name == text);
        named
            .map(|(_, stamp)| stamp)
            .ok_or_else(|| format!("{text:?}: expected one of {}", Self::NAMES.join(", ")))
    }
}

pub(crate) struct Printer {
    out: BufWriter<io::Stdout>,
    stamp: Stamp,
    /// Names by interface number, which are printed if there are several.
    names: Vec<String>,
    links: Vec<LinkType>,
    first: Option<u64>,
    last: u64,
    failed: bool,
}

impl Printer {
    pub fn new(print: &Print, interfaces: &[InterfaceFormat]) -> Self {
        let name = |(i, interface): (usize, &InterfaceFormat)| {
            interface.name.clone().unwrap_or_else(|| i.to_string())
        };
        Self {
            out: BufWriter::with_capacity(64 << 10, io::stdout()),
            stamp: print.stamp,
            names: interfaces.iter().enumerate().map(name).collect(),
            links: interfaces.iter().map(|interface| interface.link_type).collect(),
            first: None,
            last: 0,
            failed: false,
        }
    }

    pub fn print(&mut self, packet: &Placed<'_>, interface: usize) {
        let stamp = self.stamp(packet.time_ns);
        let name = if self.names.len() > 1 {
            format!("{} ", self.names[interface])
        } else {
            String::new()
        };
        let line =
            squall_wire::summary(self.links[interface].0, packet.data, packet.wire_len as usize);
        let cut = match packet.data.len() < packet.wire_len as usize {
            true => format!(" [{} of {} octets captured]", packet.data.len(), packet.wire_len),
            false => String::new(),
        };
        self.failed |= writeln!(self.out, "{stamp}{name}{line}{cut}").is_err();
    }

    /// Writes buffered lines.
    ///
    /// # Errors
    /// The reader has closed the pipe.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()?;
        if self.failed { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    fn stamp(&mut self, time: u64) -> String {
        let first = *self.first.get_or_insert(time);
        let last = if self.last == 0 { time } else { self.last };
        self.last = time;
        let seconds = |ns: u64| format!("{}.{:09} ", ns / 1_000_000_000, ns % 1_000_000_000);
        match self.stamp {
            Stamp::None => String::new(),
            Stamp::Clock => Civil::of(time).clock() + " ",
            Stamp::Date => format!("{} {} ", Civil::of(time).date(), Civil::of(time).clock()),
            Stamp::Epoch => seconds(time),
            Stamp::Relative => seconds(time.saturating_sub(first)),
            Stamp::Delta => seconds(time.saturating_sub(last)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_parsed_by_name() {
        for (name, stamp) in Stamp::NAMES.into_iter().zip(Stamp::NAMED) {
            assert_eq!((name, name.parse()), (stamp.0, Ok(stamp.1)));
        }
        assert!("Clock".parse::<Stamp>().is_err_and(|e| e.contains("clock, date, epoch")));
    }

    #[test]
    fn stamps_are_what_was_asked_for() {
        let interfaces = [InterfaceFormat::default()];
        let times =
            [1_700_000_000_000_000_000, 1_700_000_000_250_000_000, 1_700_000_001_000_000_000];
        for (stamp, shown) in [
            (Stamp::Clock, "22:13:21.000000000 "),
            (Stamp::Date, "2023-11-14 22:13:21.000000000 "),
            (Stamp::Epoch, "1700000001.000000000 "),
            (Stamp::Relative, "1.000000000 "),
            (Stamp::Delta, "0.750000000 "),
            (Stamp::None, ""),
        ] {
            let mut printer = Printer::new(&Print { stamp }, &interfaces);
            assert_eq!(times.map(|time| printer.stamp(time))[2], shown);
        }
    }
}
