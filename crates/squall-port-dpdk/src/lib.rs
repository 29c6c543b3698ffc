//! `dpdk:DEVICE`: frames through DPDK, by PCI address (`dpdk:0000:01:00.0`) or as a virtual device
//! (`dpdk:vdev=net_ring0`, `dpdk:vdev=net_memif0;role=server;socket=/run/x`: `;` replaces DPDK's
//! `,`).
//!
//! Input: an [`Address`]. Output: a [`Port`]. Nothing here knows the contents of a frame. The build
//! does not need DPDK: calls to DPDK's inline functions are in a C shim (`shim/`, built by
//! `make dpdk`), which is loaded when the first such port opens.
//!
//! Frames are written where the device reads them, without an allocation or atomic operation per
//! frame (see `shim/squall_dpdk.c`, Transmit). Received frames are read where the device wrote them,
//! if all frames of a batch are single mbufs of the queue's memory; others are copied.
//!
//! Options: see [`Options`]. The EAL starts once per process, with the options of the first port.

mod clock;
mod cut;
mod device;
mod eal;
mod link;
mod port;
mod shim;
mod steer;

use std::{io, ops::RangeInclusive};

use squall_port::{Address, AddressError, OnLinkDown, Port, Steer};

use device::DeviceName;
use eal::EalOptions;

/// Opens the port at `address`; `None` if its kind is not `dpdk`.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for a malformed address; [`io::ErrorKind::NotFound`] if the
/// shim, DPDK or the device is missing; other errors with DPDK's log.
pub fn open(address: &Address) -> io::Result<Option<Box<dyn Port>>> {
    if address.kind() != "dpdk" {
        return Ok(None);
    }
    let (options, eal_options) = Options::take(address)?;
    let name = DeviceName::parse(address)?;
    let eal = eal::start(address, &eal_options, name.bus)?;
    port::open(address, eal, &name, &options).map(Some)
}

/// The release of DPDK that ports would use, such as "DPDK 22.11.11". Starts nothing.
///
/// # Errors
/// The shim or DPDK is missing; the message describes how to get it.
pub fn release() -> io::Result<String> {
    Ok(shim::load(&"dpdk:DEVICE".parse()?)?.version())
}

/// Options of an address for the port; those for the EAL are in [`EalOptions`].
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Transmit queues; `None`: one for a virtual device, one per CPU for a NIC.
    pub queues: Option<u32>,
    pub rx_queues: Option<u32>,
    /// Descriptors per queue; 0: the driver's default.
    pub descriptors: u32,
    /// Mbufs per receive queue; 0: as many as the queue needs.
    pub mbufs: u32,
    pub mtu: u32,
    pub hardware_timestamps: bool,
    /// Launch time after the due time, nanoseconds (microseconds in the address).
    pub launch_ns: Option<u32>,
    /// Whether the device cuts TCP GSO frames.
    pub cuts: bool,
    /// Longest wait for the link before sending, seconds.
    pub wait_s: u32,
    pub on_link_down: OnLinkDown,
    /// The frames to receive, if not all.
    pub steer: Option<Steer>,
}

impl Options {
    const KEYS: &[&str] = &[
        "queues",
        "rx_queues",
        "descriptors",
        "mbufs",
        "mtu",
        "timestamps",
        "launch",
        "tso",
        "wait",
        Steer::KEY,
        OnLinkDown::KEY,
        "huge",
        "memory",
        "eal",
    ];

    fn take(address: &Address) -> io::Result<(Self, EalOptions)> {
        let mut a = address.clone();
        let options = Self {
            queues: take_number(&mut a, "queues", 1..=256)?,
            rx_queues: take_number(&mut a, "rx_queues", 0..=256)?,
            descriptors: a.take_in("descriptors", 64..=32_768, 0)?,
            mbufs: a.take_in("mbufs", 512..=1 << 20, 0)?,
            mtu: a.take_in("mtu", 68..=16_000, 1500)?,
            hardware_timestamps: match a
                .take::<String>("timestamps", "process or hardware")?
                .as_deref()
            {
                None | Some("process") => false,
                Some("hardware") => true,
                Some(other) => {
                    return Err(address
                        .error(format!("timestamps={other}, expected process or hardware"))
                        .into());
                }
            },
            launch_ns: take_number(&mut a, "launch", 0..=1_000_000)?.map(|us| us * 1000),
            cuts: a.take_flag("tso")?.unwrap_or(false),
            wait_s: a.take_in("wait", 0..=600, 5)?,
            on_link_down: OnLinkDown::take(&mut a)?,
            steer: Steer::take(&mut a)?,
        };
        let eal = EalOptions {
            huge_mb: take_number(&mut a, "huge", 0..=1 << 20)?,
            memory_mb: take_number(&mut a, "memory", 64..=1 << 20)?,
            arguments: a.take::<String>("eal", "arguments of the EAL, separated by ;")?,
        };
        if eal.arguments.is_some() && shim::is_elevated() {
            // The option -d makes the EAL load any file.
            return Err(address
                .error("a program with file capabilities does not accept eal=, try sudo")
                .into());
        }
        a.finish(Self::KEYS)?;
        Ok((options, eal))
    }
}

/// As [`Address::take_in`], but `None` if the option is not given.
fn take_number(
    a: &mut Address,
    key: &str,
    range: RangeInclusive<u32>,
) -> Result<Option<u32>, AddressError> {
    let expected = format!("a number from {} to {}", range.start(), range.end());
    match a.take(key, &expected)? {
        Some(n) if !range.contains(&n) => Err(a.error(format!("{key}={n}, expected {expected}"))),
        given => Ok(given),
    }
}
