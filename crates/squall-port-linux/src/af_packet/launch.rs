//! Launch times (SO_TXTIME): the interface's queueing discipline holds each frame until its time.
//!
//! `fq` holds frames by CLOCK_MONOTONIC and sends late ones at once. `etf` holds them by CLOCK_TAI,
//! or lets the NIC hold them, and drops late ones, which the socket's error queue reports one by
//! one.

use std::io;

use libc::c_int;
use squall_port::monotonic;
use squall_units::Nanos;

use crate::{
    netlink::{Netlink, Qdisc, attributes},
    sys::{self, Socket},
};

// asm-generic/socket.h; also the type of the control message. The libc crate lacks it.
const SO_TXTIME: c_int = 61;
// linux/errqueue.h
const SO_EE_ORIGIN_TXTIME: u8 = 6;
const SO_EE_CODE_TXTIME_MISSED: u8 = 2;
// linux/pkt_sched.h
const ROOT: u32 = u32::MAX;
const MAJOR: u32 = 0xffff_0000;
const TCA_ETF_PARMS: u16 = 1;
const DEADLINE_MODE: u32 = 1;
/// Time from the hand-over of a late frame to its launch by `etf`, in addition to the delta of the
/// discipline: longer than one call of sendmmsg(2) takes, because `etf` drops a frame whose time
/// has passed.
const RESERVE: Nanos = Nanos(500_000);

/// A queueing discipline that obeys launch times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discipline {
    Fq,
    /// `delta`: how long before its launch time `etf` passes a frame to the driver.
    Etf {
        delta: Nanos,
    },
}

impl Discipline {
    /// The discipline of interface `index`; else the kind of its root, empty if it has none.
    pub fn find(netlink: &Netlink, index: u32) -> io::Result<Result<Self, String>> {
        let all = netlink.qdiscs(index)?;
        let kind = || all.iter().find(|one| one.parent == ROOT).map(|root| root.kind.clone());
        Ok(Self::of(&all).ok_or_else(|| kind().unwrap_or_default()))
    }

    /// The discipline of an interface: its root, or all leaves of `mq`, which has one for each
    /// queue of the device.
    fn of(all: &[Qdisc]) -> Option<Self> {
        let root = all.iter().find(|one| one.parent == ROOT)?;
        if root.kind != "mq" {
            return Self::parse(root);
        }
        let is_leaf = |one: &&Qdisc| one.parent & MAJOR == root.handle & MAJOR;
        let mut leaves = all.iter().filter(is_leaf);
        let first = Self::parse(leaves.next()?)?;
        leaves.all(|one| Self::parse(one) == Some(first)).then_some(first)
    }

    fn parse(qdisc: &Qdisc) -> Option<Self> {
        match &*qdisc.kind {
            "fq" => Some(Self::Fq),
            "etf" => {
                let (_, of) =
                    attributes(&qdisc.options).find(|(kind, _)| *kind == TCA_ETF_PARMS)?;
                // struct tc_etf_qopt: delta, clockid, flags.
                let word = |i: usize| Some(i32::from_ne_bytes(*of.get(4 * i..)?.first_chunk()?));
                let (delta, clock, flags) = (word(0)?, word(1)?, word(2)?);
                // With deadlines, frames leave as soon as possible.
                let holds = flags.cast_unsigned() & DEADLINE_MODE == 0;
                (holds && clock == libc::CLOCK_TAI)
                    .then(|| Self::Etf { delta: Nanos(delta.max(0).unsigned_abs().into()) })
            }
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Fq => "fq",
            Self::Etf { .. } => "etf",
        }
    }
}

/// The launch times of a queue's frames.
#[derive(Debug)]
pub(crate) struct Launch {
    discipline: Discipline,
    /// From the due time to the launch.
    later: Nanos,
    /// Frames that `etf` dropped.
    dropped: u64,
}

/// Converts due times, for one hand-over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchTimes {
    /// Nanoseconds to add to the due time.
    add: i64,
    earliest: u64,
}

impl LaunchTimes {
    #[inline]
    pub fn of(self, due: Nanos) -> u64 {
        due.0.saturating_add_signed(self.add).max(self.earliest)
    }
}

/// A control message with a launch time, in native byte order (struct cmsghdr, then the time).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    len: usize,
    level: c_int,
    kind: c_int,
    pub at: u64,
}

impl Default for Control {
    fn default() -> Self {
        let len = size_of::<Self>();
        Self { len, level: libc::SOL_SOCKET, kind: SO_TXTIME, at: 0 }
    }
}

impl Launch {
    /// Prepares `socket` for launch times.
    ///
    /// # Errors
    /// The kernel refuses CLOCK_TAI, which needs CAP_NET_ADMIN; `later` is too short for `etf`.
    pub fn new(socket: &Socket, discipline: Discipline, later: Nanos) -> io::Result<Self> {
        if let Discipline::Etf { delta } = discipline
            && later <= delta + RESERVE
        {
            let [asked, least] = [later, delta + RESERVE].map(|time| time.0 / 1000);
            let text = format!(
                "launch={asked} is too short for this etf: its delta and the way to it take {least} \
                 microseconds\n  try launch={}, or fq",
                least + 1000
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (clockid, flags) = match discipline {
            Discipline::Fq => (libc::CLOCK_MONOTONIC, 0),
            Discipline::Etf { .. } => (libc::CLOCK_TAI, libc::SOF_TXTIME_REPORT_ERRORS),
        };
        socket.set(libc::SOL_SOCKET, SO_TXTIME, libc::sock_txtime { clockid, flags })?;
        Ok(Self { discipline, later, dropped: 0 })
    }

    /// How late a hand-over may be for its frames to leave at their launch times.
    pub fn later(&self) -> Nanos {
        match self.discipline {
            Discipline::Fq => self.later,
            Discipline::Etf { delta } => self.later.saturating_sub(delta + RESERVE),
        }
    }

    /// Read at each hand-over, because the distance of CLOCK_TAI to CLOCK_MONOTONIC may change.
    pub fn times(&self) -> LaunchTimes {
        let later = self.later.0.cast_signed();
        match self.discipline {
            Discipline::Fq => LaunchTimes { add: later, earliest: 0 },
            Discipline::Etf { delta } => {
                let now = sys::clock(libc::CLOCK_TAI);
                let add = later + now - monotonic().0.cast_signed();
                let earliest = now.unsigned_abs() + (delta + RESERVE).0;
                LaunchTimes { add, earliest }
            }
        }
    }

    /// Counts the frames that `etf` has dropped.
    pub fn read_errors(&mut self, socket: &Socket) -> io::Result<()> {
        if self.discipline == Discipline::Fq {
            return Ok(());
        }
        // A frame that `etf` refuses at once is reported, too, with another code. The call that sent
        // it has failed, so it is offered again and was not counted.
        const MISSED: [u8; 2] = [SO_EE_ORIGIN_TXTIME, SO_EE_CODE_TXTIME_MISSED];
        while let Some(error) = socket.next_error()? {
            self.dropped += u64::from(error == MISSED);
        }
        Ok(())
    }

    /// # Errors
    /// `etf` has dropped frames: the port took them, and they have not left.
    pub fn check(&self, interface: &str) -> io::Result<()> {
        match self.dropped {
            0 => Ok(()),
            dropped => Err(io::Error::other(format!(
                "{interface}: etf dropped {dropped} of the frames that were counted as sent, \
                 because they missed their launch times\n  try launch= with more than {} \
                 microseconds, or a larger delta of etf",
                self.later.0 / 1000
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qdisc(kind: &str, handle: u32, parent: u32) -> Qdisc {
        Qdisc { kind: kind.into(), handle, parent, options: Vec::new() }
    }

    fn etf(clock: i32, flags: i32) -> Qdisc {
        let words: Vec<u8> = [300_000, clock, flags].iter().flat_map(|w| w.to_ne_bytes()).collect();
        let head = [16u16, TCA_ETF_PARMS].map(u16::to_ne_bytes).concat();
        Qdisc { options: [head, words].concat(), ..qdisc("etf", 1 << 16, ROOT) }
    }

    #[test]
    fn disciplines_that_hold_frames_are_found_at_the_root_and_below_mq() {
        let (major, ingress) = (0x8001_0000, 0xffff_fff1);
        for (all, expected) in [
            (vec![qdisc("fq", major, ROOT)], Some(Discipline::Fq)),
            (
                vec![qdisc("ingress", 0xffff_0000, ingress), qdisc("fq", major, ROOT)],
                Some(Discipline::Fq),
            ),
            (vec![qdisc("fq_codel", 0, ROOT)], None),
            (vec![], None),
            (
                // The kernel's default: no handles.
                vec![qdisc("mq", 0, ROOT), qdisc("fq", 0, 1), qdisc("fq", 0, 2)],
                Some(Discipline::Fq),
            ),
            (vec![qdisc("mq", major, ROOT), qdisc("fq", 1 << 16, major | 1)], Some(Discipline::Fq)),
            (
                vec![
                    qdisc("mq", major, ROOT),
                    qdisc("fq", 1 << 16, major | 1),
                    qdisc("pfifo", 2 << 16, major | 2),
                ],
                None,
            ),
            (vec![qdisc("mq", major, ROOT)], None),
        ] {
            assert_eq!(Discipline::of(&all), expected, "{all:?}");
        }
    }

    #[test]
    fn etf_has_the_delta_that_the_kernel_reports() {
        let delta = Nanos(300_000);
        for (qdisc, expected) in [
            (etf(libc::CLOCK_TAI, 0), Some(Discipline::Etf { delta })),
            // The NIC holds the frames.
            (etf(libc::CLOCK_TAI, 2), Some(Discipline::Etf { delta })),
            (etf(libc::CLOCK_TAI, 1), None),
            (etf(libc::CLOCK_MONOTONIC, 0), None),
            (Qdisc { options: vec![16, 0, 1, 0, 9], ..etf(0, 0) }, None),
        ] {
            assert_eq!(Discipline::of(std::slice::from_ref(&qdisc)), expected, "{qdisc:?}");
        }
    }

    fn launch(discipline: Discipline) -> Launch {
        Launch { discipline, later: Nanos(1_000_000), dropped: 0 }
    }

    #[test]
    fn launches_are_later_than_due_times_by_the_delay_asked_for() {
        let now = monotonic();
        let fq = launch(Discipline::Fq).times();
        assert_eq!(fq.of(now), now.0 + 1_000_000);
        // `fq` sends late frames at once.
        assert_eq!(fq.of(Nanos(7)), 1_000_007);
        let delta = Nanos(300_000);
        assert_eq!(launch(Discipline::Fq).later(), Nanos(1_000_000));
        assert_eq!(launch(Discipline::Etf { delta }).later(), Nanos(200_000));
        let etf = launch(Discipline::Etf { delta }).times();
        let hour = 3_600_000_000_000;
        let tai = sys::clock(libc::CLOCK_TAI).unsigned_abs();
        let distance = etf.of(now + Nanos(hour)) - tai;
        // The clocks are read one after the other.
        assert!(distance.abs_diff(hour) < hour / 2, "{distance}");
        // `etf` drops late frames, so they get a new time.
        assert_eq!(etf.of(Nanos(7)), etf.of(Nanos(8)));
        assert!(etf.of(Nanos(7)) > tai - hour / 2);
    }

    #[test]
    fn frames_that_etf_dropped_are_an_error_of_the_port() {
        let mut launch = launch(Discipline::Fq);
        assert!(launch.check("eth1").is_ok());
        launch.dropped = 3;
        let text = launch.check("eth1").unwrap_err().to_string();
        assert!(text.contains("etf dropped 3 of the frames"), "{text}");
    }
}
