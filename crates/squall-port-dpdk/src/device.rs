//! A DPDK device: finds, attaches and configures it, and removes it with the last of its queues.

use std::{
    ffi::{CStr, CString},
    io,
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use squall_port::{Address, DeviceClock, InterfaceCounters, Link, LinkState, Reading, monotonic};
use squall_units::{MacAddr, Nanos};

use crate::{
    Options,
    eal::Eal,
    shim::{self, Config, Counters, DeviceFacts},
};

/// A device as DPDK names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    pub bus: Bus,
    pub name: String,
    /// Arguments for the driver, such as `role=server,id=1`.
    pub arguments: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    Virtual,
    Pci,
}

impl DeviceName {
    /// Parses `vdev=NAME[;ARGUMENT]...` or `DOMAIN:BUS:DEVICE.FUNCTION[;ARGUMENT]...`; without a
    /// domain it is 0000.
    pub fn parse(address: &Address) -> io::Result<Self> {
        let (front, arguments) = address.name().split_once(';').unwrap_or((address.name(), ""));
        let arguments = arguments
            .split(';')
            .map(str::trim)
            .filter(|a| !a.is_empty())
            .collect::<Vec<_>>()
            .join(",");
        let (bus, name) = match front.strip_prefix("vdev=") {
            Some("") => {
                return Err(address
                    .error("missing name of a virtual device, expected vdev=net_ring0")
                    .into());
            }
            Some(name) => (Bus::Virtual, name.to_owned()),
            None => match pci_address(front) {
                Some(pci) => (Bus::Pci, pci),
                None => return Err(address.error(Self::problem(front)).into()),
            },
        };
        if [&name, &arguments].iter().any(|text| text.contains('\0')) {
            return Err(address.error("a 0 octet in the name of a device").into());
        }
        Ok(Self { bus, name, arguments })
    }

    fn problem(front: &str) -> String {
        let mut problem = format!(
            "{front:?} is not a device, expected a PCI address such as dpdk:0000:01:00.0, or a \
             virtual device such as dpdk:vdev=net_ring0"
        );
        if front.starts_with("net_") {
            problem += &format!("; did you mean dpdk:vdev={front}?");
        }
        problem
    }

    fn bus(&self) -> &'static CStr {
        match self.bus {
            Bus::Virtual => c"vdev",
            Bus::Pci => c"pci",
        }
    }
}

/// The PCI address in DPDK's form (`0000:01:00.0`); `None` if `text` is not a PCI address.
fn pci_address(text: &str) -> Option<String> {
    let hex = |text: &str, digits: usize| {
        let good =
            (1..=digits).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        good.then(|| u32::from_str_radix(text, 16).ok()).flatten()
    };
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let (device, bus) = (hex(parts.next()?, 2)?, hex(parts.next()?, 2)?);
    let domain = parts.next().map_or(Some(0), |domain| hex(domain, 4))?;
    let function = hex(function, 1)?;
    // PCI numbers devices with five bits and functions with three, so the kernel has no others.
    let good = parts.next().is_none() && device < 32 && function < 8;
    good.then(|| format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

/// A started device, which is stopped and removed when dropped.
pub struct Device {
    pub address: Address,
    pub eal: Eal,
    pub port: u16,
    pub facts: DeviceFacts,
    pub config: Config,
    wait: Duration,
    pub link: Arc<Link>,
    /// Serializes calls, because drivers read device registers for the link's state.
    link_lock: Mutex<()>,
    clock: Mutex<Option<DeviceClock>>,
    /// Number of frames that the device has taken, per transmit queue. Only the queue's sender
    /// writes its counter, which is alone on its cache lines: 128 octets, because CPUs prefetch
    /// pairs of lines.
    taken: Box<[Taken]>,
}

#[repr(align(128))]
#[derive(Default)]
pub struct Taken(AtomicU64);

impl Taken {
    /// Adds `n` frames. Only the queue's owner may call this, so no atomic addition is needed.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }
}

impl Device {
    pub fn open(
        address: &Address,
        eal: Eal,
        name: &DeviceName,
        options: &Options,
    ) -> io::Result<Self> {
        clear_stale_socket(&name.arguments);
        let api = eal.api;
        let text =
            |text: &str| CString::new(text).expect("no 0 octet: DeviceName::parse has looked");
        let (device, arguments) = (text(&name.name), text(&name.arguments));
        // Discards older messages: an error must show only those of this call.
        api.take_log();
        let mut port = u16::MAX;
        // SAFETY: three texts with a final 0, and room for the result.
        let code = unsafe {
            (api.attach)(name.bus().as_ptr(), device.as_ptr(), arguments.as_ptr(), &mut port)
        };
        if code != 0 {
            return Err(attach_error(address, &eal, name, code));
        }
        // From now on, `Drop` removes the device if anything fails.
        let mut opened = Self {
            address: address.clone(),
            port,
            facts: describe(address, &eal, port)?,
            eal,
            config: Config::default(),
            wait: Duration::from_secs(options.wait_s.into()),
            link: Arc::new(Link::new(address.to_string(), options.on_link_down)),
            link_lock: Mutex::new(()),
            clock: Mutex::new(None),
            taken: Box::default(),
        };
        opened.configure(name.bus, options)?;
        Ok(opened)
    }

    fn configure(&mut self, bus: Bus, options: &Options) -> io::Result<()> {
        let facts = &self.facts;
        let limited = |requested: Option<u32>, max: u32, default: u32, key: &str| match requested {
            Some(n) if n > max => Err(self
                .address
                .error(format!("{key}={n}, but {} has at most {max}", self.driver()))),
            Some(n) => Ok(n),
            None => Ok(default.min(max)),
        };
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        // memif needs the same number of queues at both ends, and a tap needs the same number in
        // each direction. net_null "receives" frames that were never sent, at the rate of the
        // polls, so it gets no receive queue by default.
        let (sending, receiving) = match (bus, self.driver().as_str()) {
            (_, "net_null") => (cpus, 0),
            (Bus::Virtual, _) => (1, 1),
            (Bus::Pci, _) => (cpus, 1),
        };
        let mut config = Config {
            tx_queues: limited(options.queues, facts.max_tx_queues, sending, "queues")?,
            rx_queues: limited(options.rx_queues, facts.max_rx_queues, receiving, "rx_queues")?,
            mtu: options.mtu,
            tx_descriptors: options.descriptors,
            rx_descriptors: options.descriptors,
            mbufs: options.mbufs,
            using: self.facts.offers & shim::MULTI_SEGS,
        };
        if facts.max_mtu != 0 && config.mtu > facts.max_mtu {
            let problem = format!(
                "mtu={}, but {} supports at most {}",
                config.mtu,
                self.driver(),
                facts.max_mtu
            );
            return Err(self.address.error(problem).into());
        }
        // These drivers would change the kernel interface's MTU and flags permanently.
        if matches!(self.driver().as_str(), "net_af_packet" | "net_af_xdp") {
            config.using |= shim::BORROWED;
        }
        // RSS spreads frames over queues, so a single queue needs none.
        if config.rx_queues > 1 {
            config.using |= facts.offers & shim::RSS;
        }
        self.require(
            options.hardware_timestamps,
            "timestamps=hardware",
            shim::RX_TIMESTAMP,
            &mut config,
        )?;
        self.require(options.launch_ns.is_some(), "launch", shim::TX_LAUNCH, &mut config)?;
        if let Some(steer) = &options.steer {
            if config.rx_queues == 0 {
                let problem = format!("steer={steer} without a receive queue (rx_queues=1)");
                return Err(self.address.error(problem).into());
            }
            config.using |= shim::ISOLATED;
        }
        if options.cuts {
            // net_tap cuts in software, by mbufs that refer to the frame's. Those find its mbuf in
            // front of its octets, where a slot has the frame before.
            if facts.offers & shim::TX_TCP_CUT == 0 || self.driver() == "net_tap" {
                let problem = format!("tso=1, but {} does not cut TCP frames", self.driver());
                return Err(self.address.error(problem).into());
            }
            config.using |= shim::TX_TCP_CUT;
        }

        // SAFETY: `port` was attached, and no part of it is in use yet.
        let code = unsafe { (self.eal.api.configure)(self.port, &mut config) };
        if code != 0 {
            let doing = format!(
                "configure it ({} transmit and {} receive queues, mtu {})",
                config.tx_queues, config.rx_queues, config.mtu
            );
            // The error is not InvalidInput, even if the driver returned EINVAL: the address itself
            // may be correct.
            return Err(io::Error::other(
                self.eal.api.error(&self.address, &doing, code).to_string(),
            ));
        }
        // Discards messages that drivers log on success, which a later error would show.
        self.eal.api.take_log();
        self.taken = (0..config.tx_queues).map(|_| Taken::default()).collect();
        self.config = config;
        if config.using & (shim::RX_TIMESTAMP | shim::TX_LAUNCH) != 0 {
            let first = self.read_clock()?;
            // The longer the time between the readings, the smaller their error's share in the
            // rate.
            std::thread::sleep(Duration::from_millis(50));
            *self.lock_clock() = Some(DeviceClock::new(first, self.read_clock()?));
        }
        Ok(())
    }

    /// Enables the feature that `option` requests, if the device supports it and has a clock.
    fn require(
        &self,
        requested: bool,
        option: &str,
        offer: u32,
        config: &mut Config,
    ) -> io::Result<()> {
        if !requested {
            return Ok(());
        }
        let missing = match self.facts.offers {
            offers if offers & offer == 0 => "does not support it",
            offers if offers & shim::CLOCK == 0 => "has no readable clock",
            _ => {
                config.using |= offer;
                return Ok(());
            }
        };
        Err(self.address.error(format!("{option}, but {} {missing}", self.driver())).into())
    }

    pub fn driver(&self) -> String {
        // SAFETY: the shim ends the name with a 0 within its 64 octets.
        unsafe { CStr::from_ptr(self.facts.driver.as_ptr()) }.to_string_lossy().into_owned()
    }

    pub fn mac(&self) -> Option<MacAddr> {
        (self.facts.has_mac != 0).then_some(MacAddr(self.facts.mac))
    }

    pub fn taken(&self, queue: u32) -> &Taken {
        &self.taken[queue as usize]
    }

    fn counters(&self) -> Option<Counters> {
        let mut counters = Counters::default();
        // SAFETY: an attached port, and room for the result.
        let code = unsafe { (self.eal.api.counters)(self.port, &mut counters) };
        (code == 0).then_some(counters)
    }

    pub fn interface_counters(&self) -> Option<InterfaceCounters> {
        let c = self.counters()?;
        Some(InterfaceCounters {
            tx_packets: c.tx_packets,
            tx_octets: c.tx_octets,
            // DPDK has no such counter: frames that the driver does not take stay with the sender.
            tx_dropped: 0,
            tx_errors: c.tx_errors,
            rx_packets: c.rx_packets,
            rx_octets: c.rx_octets,
            rx_dropped: c.rx_missed + c.rx_no_mbuf,
            rx_errors: c.rx_errors,
            rx_missed: c.rx_missed,
            rx_fifo: 0,
        })
    }

    /// Frames that arrived but were lost for lack of room, by reason, summed over all queues.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        let c = self.counters().unwrap_or_default();
        vec![("ring_full", c.rx_missed), ("no_buffer", c.rx_no_mbuf)]
    }

    /// Whether the device has sent all frames that it took, or counted them as errors.
    pub fn all_sent(&self) -> bool {
        // The counters are comparable, because the shim resets the device's counters when it starts
        // the device.
        let taken: u64 = self.taken.iter().map(|t| t.0.load(Ordering::Relaxed)).sum();
        self.counters().is_some_and(|c| c.tx_packets + c.tx_errors >= taken)
    }

    /// Asks the driver for the link's state, and records it.
    pub fn refresh_link(&self) -> LinkState {
        let _one = self.link_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.link.set(self.is_up(), monotonic());
        self.link.state()
    }

    fn is_up(&self) -> bool {
        let mut speed = 0;
        // SAFETY: an attached port, and room for the result. An error counts as up (only 0 is
        // down), because some devices do not know their state.
        unsafe { (self.eal.api.link)(self.port, &mut speed) != 0 }
    }

    /// The link's speed, if the driver knows one; virtual devices report fictitious speeds.
    pub fn speed_bps(&self) -> Option<u64> {
        Some(u64::from(self.facts.speed_mbps) * 1_000_000).filter(|speed| *speed > 0)
    }

    /// Waits for the link to come up: NICs take one to three seconds, and memif needs its other
    /// end.
    pub fn wait_for_link(&self) {
        let deadline = Instant::now() + self.wait;
        while !self.is_up() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn lock_clock(&self) -> std::sync::MutexGuard<'_, Option<DeviceClock>> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_clock(&self) -> io::Result<Reading> {
        let mut ticks = 0;
        let before = monotonic();
        // SAFETY: an attached port, and room for the result.
        let code = unsafe { (self.eal.api.read_clock)(self.port, &mut ticks) };
        let after = monotonic();
        if code != 0 {
            return Err(self.eal.api.error(&self.address, "read the device's clock", code));
        }
        Ok(Reading { monotonic: Nanos((before.0 + after.0) / 2), ticks })
    }

    /// The device's clock, read again every 100 ms; `None` if the device uses no clock.
    pub fn clock(&self) -> Option<DeviceClock> {
        const EVERY_NS: u64 = 100_000_000;
        let mut clock = self.lock_clock();
        let clock = clock.as_mut()?;
        if monotonic().0 > clock.last_read().0 + EVERY_NS
            && let Ok(reading) = self.read_clock()
        {
            clock.read(reading);
        }
        Some(*clock)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: each queue holds an `Arc` of this device, so no queue is left.
        unsafe { (self.eal.api.detach)(self.port) };
        // Discards the messages, which the next device's error would show.
        self.eal.api.take_log();
    }
}

fn describe(address: &Address, eal: &Eal, port: u16) -> io::Result<DeviceFacts> {
    let mut facts = DeviceFacts {
        driver: [0; 64],
        mac: [0; 6],
        link_up: 0,
        has_mac: 0,
        speed_mbps: 0,
        min_mtu: 0,
        max_mtu: 0,
        max_tx_queues: 0,
        max_rx_queues: 0,
        offers: 0,
        socket: -1,
        rss_entries: 0,
    };
    // SAFETY: `port` was attached; room for the result.
    let code = unsafe { (eal.api.describe)(port, &mut facts) };
    if code != 0 {
        let error = eal.api.error(address, "describe the device", code);
        // SAFETY: no part of the port is in use.
        unsafe { (eal.api.detach)(port) };
        return Err(error);
    }
    Ok(facts)
}

fn attach_error(address: &Address, eal: &Eal, name: &DeviceName, code: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(-code);
    if error.kind() == io::ErrorKind::AlreadyExists {
        return address.error(format!("the device {} is open already", name.name)).into();
    }
    let mut error =
        eal.api.error(address, &format!("add the device {}", name.name), code).to_string();
    error += match name.bus {
        Bus::Pci => {
            "\n  the device must exist and be bound to vfio-pci (dpdk-devbind.py -b vfio-pci \
             ADDRESS), unless its driver shares it with the kernel (mlx5); the driver must be in \
             DPDK's folder of drivers"
        }
        Bus::Virtual => {
            "\n  the name consists of a driver and a number: net_null0, net_ring0, net_memif0, \
             net_pcap0, net_af_packet0, net_af_xdp0, net_tap0; text after ; is passed to the \
             driver"
        }
    };
    io::Error::new(io::ErrorKind::NotFound, error)
}

/// Removes the socket that a killed memif server leaves: otherwise the next server could not bind
/// to it.
fn clear_stale_socket(arguments: &str) {
    let value =
        |key: &str| arguments.split(',').find_map(|a| a.strip_prefix(key)?.strip_prefix('='));
    if let (Some("server" | "master"), Some(socket)) = (value("role"), value("socket")) {
        // A refused connection means that no process listens on the socket. A live server accepts,
        // and a file is not a socket.
        let refused = UnixStream::connect(Path::new(socket)).err().map(|e| e.kind());
        if refused == Some(io::ErrorKind::ConnectionRefused) && is_socket(Path::new(socket)) {
            let _ = std::fs::remove_file(socket);
        }
    }
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DeviceName, String> {
        DeviceName::parse(&text.parse().expect(text)).map_err(|e| e.to_string())
    }

    fn device(bus: Bus, name: &str, arguments: &str) -> Result<DeviceName, String> {
        Ok(DeviceName { bus, name: name.into(), arguments: arguments.into() })
    }

    #[test]
    fn pci_addresses_take_the_form_that_dpdk_has() {
        assert_eq!(parse("dpdk:0000:01:00.0"), device(Bus::Pci, "0000:01:00.0", ""));
        assert_eq!(parse("dpdk:5e:1F.7,queues=4"), device(Bus::Pci, "0000:5e:1f.7", ""));
        assert_eq!(parse("dpdk:0000:01:00.0;a=1;b=2"), device(Bus::Pci, "0000:01:00.0", "a=1,b=2"));
        for wrong in [
            "dpdk:0000:01:20.0",
            "dpdk:01:00.8",
            "dpdk:00000:01:00.0",
            "dpdk:01:00",
            "dpdk:eth0",
            "dpdk:",
        ] {
            let error = parse(wrong).expect_err(wrong);
            assert!(error.contains("expected a PCI address"), "{error}");
        }
    }

    #[test]
    fn a_semicolon_replaces_the_comma_of_a_virtual_device() {
        assert_eq!(parse("dpdk:vdev=net_null0,queues=2"), device(Bus::Virtual, "net_null0", ""));
        assert_eq!(
            parse("dpdk:vdev=net_memif0;role=server;socket=/run/x,mtu=1500"),
            device(Bus::Virtual, "net_memif0", "role=server,socket=/run/x")
        );
        assert!(parse("dpdk:vdev=").expect_err("no name").contains("vdev=net_ring0"));
        assert!(
            parse("dpdk:net_null0")
                .expect_err("no vdev=")
                .contains("did you mean dpdk:vdev=net_null0?")
        );
    }

    #[test]
    fn a_socket_without_a_server_is_cleared_and_nothing_else() {
        let path = std::env::temp_dir().join(format!("squall-memif-{}", std::process::id()));
        let arguments = format!("role=server,socket={},socket-abstract=no", path.display());
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket can be made");
        clear_stale_socket(&arguments);
        assert!(path.exists(), "somebody listens");
        drop(listener);
        clear_stale_socket(&arguments.replace("server", "client"));
        assert!(path.exists(), "a client makes no socket");
        clear_stale_socket(&arguments);
        assert!(!path.exists(), "nobody listens any more");
        std::fs::write(&path, "text").expect("a file can be made");
        clear_stale_socket(&arguments);
        assert!(path.exists(), "a file is no socket");
        std::fs::remove_file(&path).expect("it is there");
    }
}
