//! Arrival times by the clock of the NIC: its driver tells a program of the NIC the stamp of a frame
//! (Documentation/networking/xdp-rx-metadata.rst), on the NIC's clock (/dev/ptpN).

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use libc::{c_int, clockid_t};
use squall_bpf::function_id;
use squall_port::{DeviceClock, Reading, monotonic};
use squall_units::Nanos;

use crate::{
    interface::InterfaceInfo,
    sys::{self, Socket},
};

/// The kernel function that returns the stamp of a frame, from Linux 6.3 on.
const STAMP_OF_FRAME: &str = "bpf_xdp_metadata_rx_timestamp";
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// A NIC that stamps all frames, and its clock.
#[derive(Debug)]
pub struct NicStamps {
    clock: NicClock,
    /// Number of the kernel function that returns a stamp.
    pub function: u32,
    /// Frames that the NIC stamped, and frames that the program stamped instead.
    by_nic: AtomicU64,
    by_program: AtomicU64,
    _filter: StampFilter,
}

impl NicStamps {
    /// Makes the NIC stamp all frames while the value exists.
    ///
    /// # Errors
    /// The reason, for a note.
    pub fn new(interface: &InterfaceInfo) -> Result<Self, String> {
        let function = stamp_function()?;
        let number = interface.timestamping.clock.ok_or("the driver has no clock")?;
        let clock = NicClock::open(number)
            .map_err(|error| format!("cannot read its clock /dev/ptp{number}: {error}"))?;
        let filter = StampFilter::set(&interface.name).map_err(|error| {
            format!("cannot make the driver stamp all frames (SIOCSHWTSTAMP): {error}")
        })?;
        let (by_nic, by_program) = Default::default();
        Ok(Self { clock, function, by_nic, by_program, _filter: filter })
    }

    /// Adds to the counts of frames that were stamped by the NIC and by the program.
    pub fn count(&self, by_nic: u64, by_program: u64) {
        self.by_nic.fetch_add(by_nic, Ordering::Relaxed);
        self.by_program.fetch_add(by_program, Ordering::Relaxed);
    }

    /// Numbers of frames that the NIC and the program have stamped.
    pub fn summary(&self) -> String {
        let counts = [&self.by_nic, &self.by_program];
        let [nic, program] = counts.map(|count| count.load(Ordering::Relaxed));
        format!(
            "{nic} frames have arrival times by the NIC's clock ({}), {program} by the machine's",
            self.clock.name
        )
    }
}

/// The number of the kernel function for stamps.
///
/// # Errors
/// The kernel has none, or no type information.
pub fn stamp_function() -> Result<u32, String> {
    let types = std::fs::read(KERNEL_TYPES)
        .map_err(|error| format!("cannot read the kernel's type information: {error}"))?;
    function_id(&types, STAMP_OF_FRAME)
        .ok_or_else(|| "the kernel has no stamps for programs, try Linux 6.3 or newer".into())
}

/// The clock of a NIC, as a clock of the system (clock_gettime(2), "Dynamic clocks").
#[derive(Debug)]
struct NicClock {
    id: clockid_t,
    name: String,
    /// The number of the clock is valid while this is open.
    _file: Option<File>,
}

impl NicClock {
    fn open(number: u32) -> io::Result<Self> {
        let name = format!("/dev/ptp{number}");
        let file = File::open(&name)?;
        // CLOCKFD of the kernel: the descriptor, inverted, and 3 in the lower three bits.
        let id = !file.as_raw_fd() << 3 | 3;
        let clock = Self { id, name, _file: Some(file) };
        clock.read().map(|_| clock)
    }

    /// The fastest of five readings: during the others, something else ran.
    fn read(&self) -> io::Result<Reading> {
        let mut best: Option<(u64, Reading)> = None;
        for _ in 0..5 {
            let before = monotonic();
            let ticks = sys::try_clock(self.id)?;
            let after = monotonic();
            let took = after.0.saturating_sub(before.0);
            if best.is_none_or(|(shortest, _)| took < shortest) {
                let monotonic = Nanos(before.0 + took / 2);
                best = Some((took, Reading { monotonic, ticks: ticks.cast_unsigned() }));
            }
        }
        best.map(|(_, reading)| reading).ok_or_else(|| io::Error::other("no reading"))
    }
}

/// Interval between readings of the clock.
const READ_EVERY: Nanos = Nanos(100_000_000);
/// A clock that differs more from its own line was set meanwhile, because no clock drifts by 1 % in
/// an interval.
const STEP_NS: u64 = 1_000_000;
/// A stamp that differs more from the program's is none: some drivers leave the field as it was for
/// frames that they do not stamp.
const MAX_WAIT_NS: u64 = 1_000_000_000;

/// Converts stamps of a NIC to `CLOCK_MONOTONIC`, for one receiver.
#[derive(Debug)]
pub struct NicTime {
    stamps: Arc<NicStamps>,
    line: DeviceClock,
}

impl NicTime {
    pub fn new(stamps: Arc<NicStamps>) -> io::Result<Self> {
        let reading = stamps.clock.read()?;
        Ok(Self { stamps, line: DeviceClock::new(reading, reading) })
    }

    /// Reads the clock again if the last reading is old. Call it for each batch.
    pub fn follow(&mut self, now: Nanos) {
        if now.saturating_sub(self.line.last_read()) < READ_EVERY {
            return;
        }
        // Without a reading, the line continues.
        if let Ok(reading) = self.stamps.clock.read() {
            self.add(reading);
        }
    }

    fn add(&mut self, reading: Reading) {
        let error = self.line.instant(reading.ticks).0.abs_diff(reading.monotonic.0);
        match error > STEP_NS {
            true => self.line = DeviceClock::new(reading, reading),
            false => self.line.read(reading),
        }
    }

    /// The arrival time of a frame by the NIC's stamp; `None` if it has none. `program`: when the
    /// program got the frame.
    pub fn arrival(&self, stamp: u64, program: Nanos) -> Option<Nanos> {
        let time = self.line.instant(stamp);
        // A frame cannot arrive after the program had it, but the clocks differ a little.
        let plausible = time.0 < program.0 + STEP_NS && time.0 + MAX_WAIT_NS > program.0;
        (stamp != 0 && plausible).then_some(time)
    }

    pub fn stamps(&self) -> &NicStamps {
        &self.stamps
    }
}

/// The driver's setting for stamps of received frames; dropping it restores the one before.
#[derive(Debug)]
struct StampFilter {
    socket: Socket,
    interface: String,
    /// The setting to restore; `None`: it was not changed.
    before: Option<[c_int; 3]>,
}

// struct hwtstamp_config: flags, tx_type, rx_filter.
const RX_FILTER: usize = 2;
const FILTER_ALL: c_int = libc::HWTSTAMP_FILTER_ALL.cast_signed();

impl StampFilter {
    fn set(interface: &str) -> io::Result<Self> {
        let socket = Socket::new(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let mut before = [0; 3];
        socket.stamping(interface, libc::SIOCGHWTSTAMP, &mut before)?;
        let mut filter = Self { socket, interface: interface.to_owned(), before: None };
        if before[RX_FILTER] == FILTER_ALL {
            return Ok(filter);
        }
        let mut wanted = before;
        wanted[RX_FILTER] = FILTER_ALL;
        filter.socket.stamping(interface, libc::SIOCSHWTSTAMP, &mut wanted)?;
        filter.before = Some(before);
        match wanted[RX_FILTER] {
            FILTER_ALL => Ok(filter),
            // The driver answers with the filter that it uses instead.
            _ => Err(io::Error::other("it stamps some frames only (PTP)")),
        }
    }
}

impl Drop for StampFilter {
    fn drop(&mut self) {
        if let Some(mut before) = self.before {
            // Nothing is left to do about an error: the interface may be gone.
            let _ = self.socket.stamping(&self.interface, libc::SIOCSHWTSTAMP, &mut before);
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Stamps on a clock of the system in place of a NIC's.
    pub fn stamps_on(id: clockid_t, function: u32) -> NicStamps {
        let socket = Socket::new(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
        NicStamps {
            clock: NicClock { id, name: "a clock".into(), _file: None },
            function,
            by_nic: AtomicU64::new(0),
            by_program: AtomicU64::new(0),
            _filter: StampFilter { socket, interface: String::new(), before: None },
        }
    }

    #[test]
    fn stamps_of_another_clock_become_monotonic() {
        let mut time = NicTime::new(Arc::new(stamps_on(libc::CLOCK_REALTIME, 0))).unwrap();
        for _ in 0..2 {
            let before = monotonic();
            let stamp = sys::try_clock(libc::CLOCK_REALTIME).unwrap().cast_unsigned();
            let after = monotonic();
            let arrival = time.arrival(stamp, before).expect("a stamp");
            // A reading may be interrupted in the middle, and the clock may be adjusted meanwhile.
            let slack = 50_000_000;
            assert!(
                arrival.0 + slack > before.0 && arrival.0 < after.0 + slack,
                "{arrival:?}, {before:?} to {after:?}"
            );
            // The same again after another reading.
            time.follow(monotonic() + READ_EVERY);
        }
    }

    #[test]
    fn a_frame_without_a_plausible_stamp_has_the_programs_time() {
        let time = NicTime::new(Arc::new(stamps_on(libc::CLOCK_MONOTONIC, 0))).unwrap();
        let now = monotonic();
        let stamp = now.0 - 1_000_000;
        assert!(time.arrival(stamp, now).is_some_and(|arrival| arrival < now));
        assert_eq!(time.arrival(0, now), None);
        assert_eq!(time.arrival(now.0 + 200_000_000, now), None);
        assert_eq!(time.arrival(now.0 - 2 * MAX_WAIT_NS, now), None);
        let (nic, program) = (3, 4);
        time.stamps().count(nic, program);
        let summary = time.stamps().summary();
        assert!(summary.contains("3 frames have") && summary.contains(", 4 by"), "{summary}");
    }

    #[test]
    fn a_clock_that_is_set_begins_a_new_line() {
        let mut time = NicTime::new(Arc::new(stamps_on(libc::CLOCK_MONOTONIC, 0))).unwrap();
        let at = |ns: u64, ticks: u64| Reading { monotonic: Nanos(ns), ticks };
        time.line = DeviceClock::new(at(0, 0), at(0, 0));
        time.add(at(100_000_000, 100_001_000));
        // 10 ppm fast: one second later it shows 1,000,010,000 ns.
        assert_eq!(time.line.instant(1_100_011_000).0, 1_100_000_000);
        // Set 37 s ahead (to TAI): a rate over this step would be nonsense.
        time.add(at(200_000_000, 37_200_002_000));
        assert_eq!(time.line.instant(37_200_002_000 + 50_000), Nanos(200_050_000));
    }

    #[test]
    fn the_kernel_has_a_function_for_stamps_from_linux_6_3_on() {
        match stamp_function() {
            Ok(function) => assert!(function > 0),
            Err(why) => println!("SKIPPED: {why}"),
        }
    }
}
