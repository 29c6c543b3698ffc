//! Captures as what is sent: where they are read from, and what became of them.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    str::FromStr,
    sync::Arc,
};

use squall_engine::Replayed;
use squall_measure::{census::Share, flow};
use squall_port::ETHERNET;
use squall_replay::{
    Chunk, Gap, Input, Reader, Replay, Split, SplitBy, Timing,
    split::{Auto, By},
    stats::Summary,
};
use squall_units::{FCS_LEN, L1_OVERHEAD, Nanos, Rate, RateUnit, UnitError};

use crate::{
    Error, prep,
    report::{
        PortReport, ReplayEdits, ReplayFlows, ReplayPort, ReplayRead, ReplayReport, ReplayShare,
        source::{SourceKind, SourceRecord},
    },
};

/// The capture at `path`; `-` is the standard input, which can be read once.
///
/// ```
/// assert!(squall::replay::input("-".as_ref()).once);
/// ```
pub fn input(path: &Path) -> Input {
    let name = path.display().to_string();
    if name == "-" {
        let open = || Ok(Box::new(io::stdin()) as Box<dyn Read + Send>);
        return Input { name: "standard input".into(), open: Arc::new(open), once: true };
    }
    let path = path.to_owned();
    // A pipe is empty when it has been read.
    let once = path.metadata().is_ok_and(|about| !about.is_file());
    let open = move || File::open(&path).map(|file| Box::new(file) as Box<dyn Read + Send>);
    Input { name, open: Arc::new(open), once }
}

/// The frames of a replay as they are going to leave, in words.
pub struct Preview {
    source: Reader,
    chunk: Chunk,
    at: usize,
    number: u64,
}

impl Preview {
    /// # Errors
    /// [`Error::Usage`], as for the replay itself.
    pub fn open(replay: &Replay, ports: usize) -> Result<Self, Error> {
        let source = Reader::open(replay.clone(), vec![u32::MAX; ports])
            .map_err(|error| Error::Usage(error.to_string()))?;
        Ok(Self { source, chunk: Chunk::default(), at: 0, number: 0 })
    }
}

impl Iterator for Preview {
    /// The port (0 or 1), and a line in the manner of `tcpdump -n`.
    type Item = (u8, String);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.chunk.departures.len() {
            // What is wrong with the captures is told by the run.
            self.source.fill(&mut self.chunk).ok().filter(|more| *more)?;
            self.at = 0;
        }
        let octets = self.chunk.frame(self.at);
        let line = squall_wire::summary(ETHERNET, octets, octets.len());
        let port = self.chunk.departures[self.at].port;
        (self.at, self.number) = (self.at + 1, self.number + 1);
        Some((port, format!("#{} {line}", self.number)))
    }
}

/// Takes the frames of captures that `expression` takes, in the language of tcpdump.
///
/// # Errors
/// [`Error::Usage`] for an expression that says nothing, [`Error::Environment`] without libpcap.
pub fn filter(expression: &str) -> Result<Arc<squall_bpf::classic::Filter>, Error> {
    let filter = crate::filter::compile_file(expression, ETHERNET)?;
    Ok(Arc::new(filter.program.clone()))
}

/// What tells two ports' packets apart: `kind` is `cache` (`text` names its file), `auto`, `cidr`,
/// `regex`, `mac` or `port` (of services, without a text); `reverse` exchanges the ports.
///
/// # Errors
/// [`Error::Usage`] with what was found and what was expected.
pub fn split(kind: &str, text: &str, reverse: bool) -> Result<SplitBy, Error> {
    let by = match kind {
        "cache" if reverse => {
            return Err(Error::Usage(format!(
                "{text} says which port is whose\n  try to exchange the ports"
            )));
        }
        "cache" => return prep::read(Path::new(text)).map(|cache| SplitBy::Cache(Arc::new(cache))),
        "auto" => text.parse().map(|mode| By::Auto(Auto { mode, ..Auto::default() })),
        "cidr" => By::cidr(text),
        "regex" => By::regex(text),
        "mac" => By::mac(text),
        "port" => Ok(By::Port(Box::default())),
        other => {
            return Err(Error::Usage(format!(
                "{other:?}: expected cache, auto, cidr, regex, mac or port"
            )));
        }
    };
    let by = by.map_err(|error| Error::Usage(error.to_string()))?;
    Ok(SplitBy::Rule(Box::new(Split { reverse, ..Split::new(by) })))
}

/// How fast captures are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// So many times as fast as they were captured.
    Captured(Decimal),
    /// Frames a second.
    Pps(Decimal),
    /// Megabits a second of the frames without FCS, as tcpreplay counts.
    Mbps(Decimal),
    Rate(Rate),
    Ramp(Ramp),
    /// As fast as the port goes.
    Top,
}

impl Default for Speed {
    /// As captured.
    fn default() -> Self {
        Self::Captured(Decimal { num: 1, den: 1 })
    }
}

impl Speed {
    /// By what it is: `multiplier` (2.5), `pps` (0.5), `mbps` (100), `rate` (10kpps), `ramp`
    /// (1kpps..10kpps:30s), `top`.
    ///
    /// # Errors
    /// [`Error::Usage`] with what was found and what was expected.
    pub fn parse(kind: &str, text: &str) -> Result<Self, Error> {
        let wrong = |error: String| Error::Usage(format!("{kind} = {error}"));
        Ok(match kind {
            "multiplier" => Self::Captured(text.parse().map_err(wrong)?),
            "pps" => Self::Pps(text.parse().map_err(wrong)?),
            "mbps" => Self::Mbps(text.parse().map_err(wrong)?),
            "rate" => {
                Self::Rate(text.parse().map_err(|error: UnitError| wrong(error.to_string()))?)
            }
            "ramp" => Self::Ramp(text.parse().map_err(wrong)?),
            "top" => Self::Top,
            other => {
                let expected = "multiplier, pps, mbps, rate, ramp or top";
                return Err(Error::Usage(format!("{other:?}: expected {expected}")));
            }
        })
    }

    /// `together` frames leave at once.
    ///
    /// # Errors
    /// [`Error::Usage`]: a rate in per cent, or one that does not fit 64 bits.
    pub fn timing(self, together: u32) -> Result<Timing, Error> {
        let paced = |gap| Timing::Paced { gap, together };
        let (gap, extra) = match self {
            Self::Captured(Decimal { num, den }) => return Ok(Timing::Captured { num, den }),
            Self::Top => return Ok(Timing::Top),
            Self::Ramp(Ramp { from, to, over }) => {
                let (octets, scale) = match to.unit {
                    RateUnit::BpsL1 => (Some(FCS_LEN + L1_OVERHEAD), 8.0),
                    RateUnit::BpsL2 => (Some(FCS_LEN), 8.0),
                    _ => (None, 1.0),
                };
                let a_second = |rate: Rate| rate.num as f64 / rate.den as f64 / scale;
                return Ok(Timing::Ramp {
                    from: a_second(from),
                    to: a_second(to),
                    over: over.into(),
                    octets,
                });
            }
            Self::Pps(Decimal { num, den }) => (Gap::from_pps(num, den), None),
            Self::Mbps(Decimal { num, den }) => {
                let bps = num.checked_mul(1_000_000);
                let bps = bps.ok_or_else(|| {
                    Error::Usage("more Mb/s than fit 64 bits\n  try the top speed".into())
                })?;
                (Gap::from_bps(bps, den, false), Some(0))
            }
            Self::Rate(rate) if rate.is_zero() => {
                return Err(Error::Usage("a rate of nothing sends nothing\n  try 1pps".into()));
            }
            Self::Rate(rate) => match rate.unit {
                RateUnit::Max => (Gap::Zero, None),
                RateUnit::Pps => (Gap::from_pps(rate.num, rate.den), None),
                RateUnit::BpsL1 => (Gap::from_bps(rate.num, rate.den, true), None),
                RateUnit::BpsL2 => (Gap::from_bps(rate.num, rate.den, false), None),
                RateUnit::Percent => {
                    return Err(Error::Usage(format!(
                        "{rate}: a replay knows no share of the port\n  try 10kpps or 1Gbps"
                    )));
                }
            },
        };
        Ok(paced(match (gap, extra) {
            (Gap::PerOctet { num, den, .. }, Some(extra)) => Gap::PerOctet { num, den, extra },
            (gap, _) => gap,
        }))
    }
}

/// A number with a fraction, exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    pub num: u64,
    /// A power of ten.
    pub den: u64,
}

impl FromStr for Decimal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?}: expected a number above 0, with at most 6 decimal places");
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 || (whole.len() + part.len()) == 0 {
            return Err(wrong());
        }
        let num: u64 = format!("{whole}{part}").parse().map_err(|_| wrong())?;
        match num {
            0 => Err(wrong()),
            num => Ok(Self { num, den: 10u64.pow(part.len() as u32) }),
        }
    }
}

/// From one rate to another of the same unit, evenly: `FROM..TO:TIME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    pub from: Rate,
    pub to: Rate,
    pub over: Nanos,
}

impl FromStr for Ramp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?}: expected FROM..TO:TIME, as in 1kpps..100kpps:30s or 10Mbps..1Gbps:1m"
            )
        };
        let (rates, over) = text.rsplit_once(':').ok_or_else(wrong)?;
        let (from, to) = rates.split_once("..").ok_or_else(wrong)?;
        let rate = |text: &str| text.parse::<Rate>().map_err(|error| format!("{text:?}: {error}"));
        let ramp = Self {
            from: rate(from)?,
            to: rate(to)?,
            over: over.parse().map_err(|e| format!("{over:?}: {e}"))?,
        };
        let alike = ramp.from.unit == ramp.to.unit
            && !matches!(ramp.to.unit, RateUnit::Max | RateUnit::Percent);
        if !alike || ramp.to.is_zero() || ramp.over == Nanos::ZERO {
            return Err(format!(
                "{}; both rates in one unit, the second and the time above 0",
                wrong()
            ));
        }
        Ok(ramp)
    }
}

/// `ports` are those of the replay, in its order.
pub(crate) fn report(
    replay: &Replay,
    replayed: &Replayed,
    ports: &[(&PortReport, u64)],
    seconds: f64,
) -> ReplayReport {
    let (tally, sent) = (replayed.source.tally(), replayed.source.sent());
    let of_port =
        |(sent, (port, retried)): (&squall_replay::Sent, &(&PortReport, u64))| ReplayPort {
            port: port.name.clone(),
            attempted: sent.attempted,
            successful: sent.successful,
            failed: sent.failed,
            truncated: sent.truncated,
            retried: *retried,
        };
    ReplayReport {
        files: replay.inputs.iter().map(|input| input.name.clone()).collect(),
        loops: replayed.source.loops(),
        packets: sent.iter().map(|sent| sent.successful).sum(),
        octets: sent.iter().map(|sent| sent.octets).sum(),
        read: ReplayRead {
            packets: tally.packets,
            octets: tally.octets,
            unwanted: tally.unwanted,
            sideless: tally.sideless,
            edited_out: tally.edited_out,
            too_long: tally.too_long,
            not_ethernet: tally.not_ethernet,
            cut: tally.cut,
            backward: replayed.source.backward(),
        },
        ports: sent.iter().zip(ports).map(of_port).collect(),
        flows: replayed.source.flows().map(|flows| flow_report(&flows, seconds)),
        edited: Some(replayed.source.edited())
            .filter(|edited| edited.packets_in > 0)
            .map(|edited| edit_report(&edited)),
        starved_s: replayed.starved.as_secs_f64(),
        fault: replayed.error.as_ref().map(ToString::to_string),
    }
}

/// What the verdict has to know of reading: for how long before the end a capture that came too
/// late kept frames back, where a rate says that there were some, and what it could not be read
/// for.
pub(crate) fn tell(replay: &Replay, replayed: &Replayed, sources: &mut [SourceRecord]) {
    let has_rate = match replay.timing {
        Timing::Paced { gap, .. } => !matches!(gap, Gap::Zero),
        Timing::Ramp { .. } => true,
        Timing::Captured { .. } | Timing::Top => false,
    };
    let of_captures = |source: &&mut SourceRecord| {
        matches!(source.kind, SourceKind::Replay | SourceKind::Attacks) && source.unit == "packets"
    };
    for source in sources.iter_mut().filter(of_captures) {
        source.unread_s = if has_rate { replayed.dry.as_secs_f64() } else { 0.0 };
        source.fault = replayed.error.as_ref().map(ToString::to_string);
    }
}

fn flow_report(summary: &Summary, seconds: f64) -> ReplayFlows {
    let counts = &summary.counts;
    let share = |name: String, share: &Share| ReplayShare {
        name,
        packets: share.packets,
        octets: share.octets,
    };
    let protocol = |&(version, protocol, ref of): &(u8, u8, Share)| {
        let name = flow::protocol::name(protocol)
            .map_or_else(|| format!("protocol {protocol}"), str::to_owned);
        share(if version == 0 { "no IP".to_owned() } else { format!("IPv{version} {name}") }, of)
    };
    ReplayFlows {
        flows: counts.flows,
        unique: counts.unique_flows,
        expired: counts.expired_flows,
        flows_per_second: counts.flows_per_second(seconds),
        flow_packets: counts.flow_packets,
        non_flow_packets: counts.non_flow_packets,
        invalid_packets: counts.invalid_packets,
        overflow_packets: counts.overflow_packets,
        protocols: summary.protocols.iter().map(protocol).collect(),
        talkers: summary.talkers.iter().map(|(host, of)| share(host.to_string(), of)).collect(),
        top_flows: summary.top_flows.iter().map(|(key, of)| share(key.to_string(), of)).collect(),
    }
}

fn edit_report(counts: &squall_edit::Counts) -> ReplayEdits {
    ReplayEdits {
        changed: counts.changed,
        dropped: counts.dropped,
        added: (counts.packets_out + counts.dropped).saturating_sub(counts.packets_in),
    }
}
