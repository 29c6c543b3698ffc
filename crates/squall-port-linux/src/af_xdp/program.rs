//! The XDP program that redirects frames to the sockets with a timestamp, and passes all other
//! frames to the host.

use std::{
    io,
    net::Ipv6Addr,
    str::FromStr,
    sync::{Arc, OnceLock, atomic::Ordering},
};

use squall_bpf::{
    Alu, Asm, Cond, Label, MapId, MapKind, MapSpec, Object, Reg::*, Size, helper, xdp_action,
    xdp_md,
};
use squall_port::{Hosts, address_ranges};
use squall_units::{MacAddr, SIGNATURE_HASH};

use super::moderation::Moderation;
use crate::{
    af_packet::be_promiscuous,
    bpf::{Attached, Kind, MappedArray, Program, XdpMode},
    ntuple::Steering,
    sys::Socket,
};

/// The frames that the port takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Take {
    /// Frames to another station's MAC address, and frames with a signature: the host has no use
    /// for either.
    #[default]
    Test,
    /// Frames with a signature.
    Signed,
    /// IPv4 and IPv6 datagrams to this UDP port, in frames without a VLAN tag.
    Udp(u16),
    /// Packets to these addresses, after up to two VLAN tags; also the ARP and neighbor discovery
    /// packets that resolve the MAC addresses of these hosts and of their neighbors.
    Hosts(Ranges),
    /// Every frame.
    All,
}

/// Ranges of addresses, for a program: in ascending order, without overlaps or adjacent ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
    /// Also takes all MPLS packets.
    labels: bool,
    /// Also takes the frames of [`Take::Test`].
    shared: bool,
}

/// The program compares with each range, and the verifier explores at most 8192 jumps
/// (BPF_COMPLEXITY_LIMIT_JMP_SEQ): four for an IPv6 range, in each of two parts of the program.
const MAX_RANGES: usize = 256;

impl Ranges {
    /// Whether the ranges include all addresses of `others`.
    pub fn cover(&self, others: &Self) -> bool {
        fn within<T: PartialOrd>(one: &(T, T), all: &[(T, T)]) -> bool {
            all.iter().any(|(first, last)| *first <= one.0 && one.1 <= *last)
        }
        others.v4.iter().all(|one| within(one, &self.v4))
            && others.v6.iter().all(|one| within(one, &self.v6))
    }
}

/// Converts the hosts' addresses to ranges.
///
/// # Errors
/// There are too many ranges.
pub fn ranges(hosts: &Hosts) -> Result<Ranges, String> {
    let (v4, v6) = address_ranges(&hosts.addresses)?;
    if v4.len() + v6.len() > MAX_RANGES {
        let found = v4.len() + v6.len();
        return Err(format!(
            "{found} ranges of addresses, expected at most {MAX_RANGES}\n  try fewer and longer \
             ranges, or take=all"
        ));
    }
    let v4 = v4.into_iter().map(|(first, last)| (first as u32, last as u32)).collect();
    Ok(Ranges { v4, v6, labels: hosts.labels, shared: hosts.shared })
}

impl Take {
    pub const EXPECTED: &str = "test, signed, udp/PORT or all";
}

impl FromStr for Take {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "test" => Ok(Self::Test),
            "signed" => Ok(Self::Signed),
            "all" => Ok(Self::All),
            _ => text
                .strip_prefix("udp/")
                .and_then(|port| port.parse().ok())
                .map(Self::Udp)
                .ok_or(()),
        }
    }
}

/// Octets in front of each frame for its arrival time, `CLOCK_MONOTONIC`; and, in front of that, in
/// as many octets, for the NIC's stamp (0: none) if the program asks for it.
pub const STAMP: usize = 8;

// Maps of the program, in the order in which they are declared.
const SOCKETS: usize = 0;
const COUNTERS: usize = 1;
/// 64-bit words of the counters.
const PASSED: usize = 0;
const PASSED_OCTETS: usize = 1;
/// Matching frames of queues without a socket: these pass to the host, too.
const UNCLAIMED: usize = 2;
const UNSTAMPED: usize = 3;
/// The key of expected signatures; [`ANY_KEY`] accepts signatures of any run.
const KEY: usize = 4;
const WORDS: usize = 5;

/// Longer than 32 bits, because it must differ from every XOR of two checks.
const ANY_KEY: u64 = 1 << 32;
/// Marks a key as that of a run, because two different frames had it. Until then the entry holds
/// the lower half of the only signature seen with that key, with its second bit set, so it is
/// neither this mark nor 0.
const SHOWN: i32 = 1;
const KEYS: u32 = 1 << 16;

/// The program, on the interface until dropped.
#[derive(Debug)]
pub struct Receiving {
    program: Program,
    counters: Arc<Counters>,
    /// Set by [`Receiving::attach`].
    attached: OnceLock<(Attached, XdpMode)>,
    /// Keeps the interface in promiscuous mode.
    promiscuous: OnceLock<Socket>,
    /// Rules of the NIC for the port's queue.
    steering: OnceLock<Steering>,
    moderation: OnceLock<Moderation>,
}

impl Receiving {
    /// Loads the program for up to `queues` queues of the device; does not attach it.
    pub fn load(take: &Take, mac: Option<MacAddr>, queues: u32) -> io::Result<Self> {
        Self::load_as(take, mac, queues, Kind::Xdp { frags: true }, None)
    }

    /// As [`Receiving::load`], for the interface `index`, whose driver returns the NIC's stamp by the
    /// kernel's function number `stamp`. It cannot be attached in generic mode.
    ///
    /// # Errors
    /// As [`Receiving::load`]; and if the driver has no stamps for programs.
    pub fn load_for_nic(
        take: &Take,
        mac: Option<MacAddr>,
        queues: u32,
        (index, stamp): (u32, u32),
    ) -> io::Result<Self> {
        Self::load_as(take, mac, queues, Kind::XdpOfInterface(index), Some(stamp))
    }

    fn load_as(
        take: &Take,
        mac: Option<MacAddr>,
        queues: u32,
        kind: Kind,
        stamp: Option<u32>,
    ) -> io::Result<Self> {
        let program = Program::load(&assemble(take, mac, queues, stamp), kind)?;
        let counters = Arc::new(Counters(program.map(COUNTERS).mapped()?));
        counters.expect(None);
        let (attached, promiscuous, steering, moderation) = Default::default();
        Ok(Self { program, counters, attached, promiscuous, steering, moderation })
    }

    /// Attaches the program in the first of `modes` that works. Returns the errors of the modes
    /// before it.
    pub fn attach(
        &self,
        interface: &str,
        index: u32,
        modes: &[XdpMode],
    ) -> io::Result<Vec<String>> {
        let mut notes = Vec::new();
        for (i, &mode) in modes.iter().enumerate() {
            match self.program.attach_xdp(index, mode) {
                Ok(attached) => {
                    let _ = self.attached.set((attached, mode));
                    return Ok(notes);
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                    let text = format!(
                        "{interface} has another XDP program\n  try: ip link show {interface}; ip \
                         link set {interface} xdp off, or end its owner"
                    );
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
                }
                Err(error) if i + 1 < modes.len() => {
                    notes.push(format!(
                        "{interface}: generic XDP, as the driver accepts no native program \
                         ({error})"
                    ));
                }
                Err(error) => {
                    let text = format!(
                        "{interface}: cannot attach the {} XDP program: {error}",
                        name(mode)
                    );
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        }
        Ok(notes)
    }

    pub fn is_attached(&self) -> bool {
        self.attached.get().is_some()
    }

    /// Whether it is attached in the network stack, where joined frames arrive.
    pub fn is_generic(&self) -> bool {
        matches!(self.attached.get(), Some((_, XdpMode::Generic)))
    }

    /// Makes the interface accept frames to any MAC address while `self` exists.
    pub fn be_promiscuous(&self, socket: Socket, index: u32) -> io::Result<()> {
        be_promiscuous(&socket, index)?;
        let _ = self.promiscuous.set(socket);
        Ok(())
    }

    /// Keeps rules of the NIC set while `self` exists.
    pub fn keep(&self, steering: Steering) {
        let _ = self.steering.set(steering);
    }

    /// Keeps the interface's queues moderated while `self` exists.
    pub fn moderate(&self, moderation: Moderation) {
        let _ = self.moderation.set(moderation);
    }

    /// Redirects frames of the device's `queue` to `socket` from now on.
    pub fn add(&self, queue: u32, socket: &Socket) -> io::Result<()> {
        self.program.map(SOCKETS).update(&queue.to_ne_bytes(), &socket.fd().to_ne_bytes())
    }

    /// Lets frames of `queue` pass to the host from now on.
    pub fn remove(&self, queue: u32) {
        let _ = self.program.map(SOCKETS).delete(&queue.to_ne_bytes());
    }

    /// The counters, which stay readable after the program is gone.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}

/// The program's counters.
#[derive(Debug)]
pub struct Counters(MappedArray);

impl Counters {
    /// Sets the key of expected signatures; `None` accepts signatures of any run.
    pub fn expect(&self, key: Option<u16>) {
        self.0.word(KEY).store(key.map_or(ANY_KEY, u64::from), Ordering::Relaxed);
    }

    /// Frames left to the host, and their octets.
    pub fn passed(&self) -> (u64, u64) {
        let word = |at: usize| self.0.word(at).load(Ordering::Relaxed);
        (word(PASSED) + word(UNCLAIMED), word(PASSED_OCTETS))
    }

    /// Frames left to the host because they are addressed to it, not because their queue had no
    /// socket.
    pub fn for_host(&self) -> u64 {
        self.0.word(PASSED).load(Ordering::Relaxed)
    }

    /// Frames left to the host because their queue had no socket.
    pub fn unclaimed(&self) -> u64 {
        self.0.word(UNCLAIMED).load(Ordering::Relaxed)
    }

    /// Whether the driver leaves no room in front of frames for the arrival time.
    #[inline]
    pub fn cannot_stamp(&self) -> bool {
        self.0.word(UNSTAMPED).load(Ordering::Relaxed) != 0
    }
}

pub fn name(mode: XdpMode) -> &'static str {
    match mode {
        XdpMode::Generic => "generic",
        XdpMode::Native => "native",
    }
}

const ETHERNET_HEADER: i32 = 14;
const ETHERTYPE_AT: i16 = 12;
const UDP: i32 = 17;

/// `stamp`: the number of the kernel's function that returns the NIC's stamp, if frames get it.
fn assemble(take: &Take, mac: Option<MacAddr>, queues: u32, stamp: Option<u32>) -> Object {
    let mut a = Asm::new("squall_recv");
    let map = |name: &str, kind, value_octets, entries, mmap| MapSpec {
        name: name.into(),
        kind,
        key_octets: 4,
        value_octets,
        entries,
        mmap,
    };
    let sockets = a.map(map("squall_sockets", MapKind::XskMap, 4, queues, false));
    let counters = a.map(map("squall_counts", MapKind::Array, 8 * WORDS as u32, 1, true));
    let keys = match take {
        Take::All | Take::Udp(_) => None,
        Take::Hosts(ranges) if !ranges.shared => None,
        _ => Some(a.map(map("squall_keys", MapKind::Array, 8 * KEYS, 1, false))),
    };
    let signed = keys.map(|keys| SignatureMaps { counters, keys });
    let (taken, pass, redirect) = (a.label(), a.label(), a.label());

    a.mov(R6, R1);
    match take {
        Take::All => {}
        Take::Signed => is_signed(&mut a, signed.expect("made above"), taken, pass),
        Take::Udp(port) => is_udp(&mut a, *port, taken, pass),
        Take::Hosts(ranges) if ranges.shared => {
            let others = a.label();
            is_for(&mut a, ranges, taken, others);
            a.bind(others);
            is_for_test(&mut a, mac, signed.expect("made above"), taken, pass);
        }
        Take::Hosts(ranges) => is_for(&mut a, ranges, taken, pass),
        Take::Test => is_for_test(&mut a, mac, signed.expect("made above"), taken, pass),
    }

    a.bind(taken).call(helper::KTIME_GET_NS).mov(R7, R0);
    let (unstamped, room) = (a.label(), STAMP as i32 * if stamp.is_some() { 2 } else { 1 });
    if let Some(stamp) = stamp {
        // int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, u64 *timestamp)
        let stamped = a.label();
        a.store(Size::U64, R10, -8, 0).mov(R1, R6).mov(R2, R10).add(R2, -8).call_kernel(stamp);
        a.load(Size::U64, R8, R10, -8).jump_if(Cond::Eq, R0, 0, stamped).mov(R8, 0).bind(stamped);
    }
    a.mov(R1, R6).mov(R2, -room).call(helper::XDP_ADJUST_META).jump_if(Cond::Ne, R0, 0, unstamped);
    a.load(Size::U32, R2, R6, xdp_md::DATA_META).load(Size::U32, R3, R6, xdp_md::DATA);
    a.mov(R4, R2).add(R4, room).jump_if(Cond::Gt, R4, R3, redirect);
    if stamp.is_some() {
        a.store(Size::U64, R2, 0, R8);
    }
    a.store(Size::U64, R2, room as i16 - STAMP as i16, R7);
    // Without a socket for the queue, the helper returns PASS.
    a.bind(redirect).load_map(R1, sockets).load(Size::U32, R2, R6, xdp_md::RX_QUEUE_INDEX);
    let (unclaimed, count) = (a.label(), a.label());
    a.mov(R3, xdp_action::PASS)
        .call(helper::REDIRECT_MAP)
        .jump_if(Cond::Eq, R0, xdp_action::PASS, unclaimed)
        .exit();
    a.bind(unstamped).mov(R1, 1).load_map_value(R2, counters, UNSTAMPED as u32 * 8);
    a.atomic_add(Size::U64, R2, 0, R1).jump(redirect);

    a.bind(unclaimed).load_map_value(R7, counters, UNCLAIMED as u32 * 8).jump(count);
    if *take != Take::All {
        a.bind(pass).load_map_value(R7, counters, PASSED as u32 * 8);
    }
    a.bind(count)
        .mov(R1, 1)
        .atomic_add(Size::U64, R7, 0, R1)
        .mov(R1, R6)
        .call(helper::XDP_GET_BUFF_LEN);
    a.load_map_value(R2, counters, PASSED_OCTETS as u32 * 8).atomic_add(Size::U64, R2, 0, R0);
    a.mov(R0, xdp_action::PASS).exit();
    a.finish()
}

/// Jumps to `taken` for frames that [`Take::Test`] takes, and to `pass` for others.
fn is_for_test(
    a: &mut Asm,
    mac: Option<MacAddr>,
    signed: SignatureMaps,
    taken: Label,
    pass: Label,
) {
    let host = mac.unwrap_or(MacAddr([0; 6])).0;
    let to_host = a.label();
    load_frame(a, ETHERNET_HEADER, pass);
    a.load(Size::U8, R4, R2, 0).jump_if(Cond::Set, R4, 1, to_host);
    a.load(Size::U32, R4, R2, 0)
        .mov64(R5, u64::from(u32::from_ne_bytes([host[0], host[1], host[2], host[3]])));
    a.jump_if(Cond::Ne, R4, R5, taken).load(Size::U16, R4, R2, 4);
    a.jump_if(Cond::Ne, R4, i32::from(u16::from_ne_bytes([host[4], host[5]])), taken);
    a.bind(to_host);
    is_signed(a, signed, taken, pass);
}

/// The maps that decide whether a signature is expected.
#[derive(Clone, Copy)]
struct SignatureMaps {
    counters: MapId,
    keys: MapId,
}

/// Loads R2 with the frame, of which `octets` are readable; jumps to `short` if it has fewer.
fn load_frame(a: &mut Asm, octets: i32, short: Label) {
    a.load(Size::U32, R2, R6, xdp_md::DATA).load(Size::U32, R3, R6, xdp_md::DATA_END);
    a.mov(R4, R2).add(R4, octets).jump_if(Cond::Gt, R4, R3, short);
}

/// Checks as `Signature::read_of` in squall-program does, or as `Signature::read` if no key is
/// known. Loads the octets by a helper, because the end of a frame may be in another buffer.
///
/// Without a key, one of 65,536 frames for the host looks signed. If that frame were always taken,
/// a TCP segment could never arrive, not even by retransmission. So the first frame with a key is
/// taken, but the same frame passes to the host when it is repeated; a different frame with that
/// key shows that the key is a run's.
fn is_signed(a: &mut Asm, keys: SignatureMaps, signed: Label, unsigned: Label) {
    const LEN: i32 = 16;
    let [of_low, constant, of_all] = SIGNATURE_HASH;
    a.mov(R1, R6).call(helper::XDP_GET_BUFF_LEN).jump_if(
        Cond::Lt,
        R0,
        ETHERNET_HEADER + LEN,
        unsigned,
    );
    a.mov(R2, R0).add(R2, -LEN).mov(R1, R6).mov(R3, R10).add(R3, -LEN).mov(R4, LEN);
    a.call(helper::XDP_LOAD_BYTES).jump_if(Cond::Ne, R0, 0, unsigned);
    a.load(Size::U64, R2, R10, -LEN as i16).to_big_endian(R2, 64);
    a.load(Size::U64, R3, R10, -LEN as i16 + 8).to_big_endian(R3, 64);
    a.mov64(R4, of_low)
        .mul(R3, R4)
        .mov64(R4, constant)
        .xor(R3, R4)
        .alu32(Alu::Mov, R4, R2)
        .xor(R3, R4);
    a.mov(R4, R3).shift_right(R4, 32).xor(R3, R4).mov64(R4, of_all).mul(R3, R4).shift_right(R3, 32);
    a.shift_right(R2, 32).xor(R2, R3);
    a.load_map_value(R4, keys.counters, KEY as u32 * 8).load(Size::U64, R4, R4, 0);
    a.jump_if(Cond::Eq, R2, R4, signed).mov64(R5, ANY_KEY).jump_if(Cond::Ne, R4, R5, unsigned);
    a.jump_if(Cond::Gt, R2, KEYS as i32 - 1, unsigned);
    let store = a.label();
    a.load(Size::U64, R3, R10, -LEN as i16 + 8).alu(Alu::Or, R3, 2);
    a.and(R2, KEYS as i32 - 1).shift_left(R2, 3).load_map_value(R4, keys.keys, 0).add(R4, R2);
    a.load(Size::U64, R5, R4, 0).jump_if(Cond::Eq, R5, SHOWN, signed);
    a.jump_if(Cond::Eq, R5, R3, unsigned).jump_if(Cond::Eq, R5, 0, store).mov(R3, SHOWN);
    a.bind(store).store(Size::U64, R4, 0, R3).jump(signed);
}

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const MPLS: u16 = 0x8847;
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// Jumps to `own` for packets to an address in `ranges`, and for ARP messages and neighbor
/// solicitations about such an address.
fn is_for(a: &mut Asm, ranges: &Ranges, own: Label, others: Label) {
    const TAG: i32 = 4;
    const IPV6_HEADER: i32 = 40;
    let ethertype = |t: u16| i32::from(t.to_be());
    // R2 points to the frame plus the length of its VLAN tags: offsets from the EtherType on are
    // then the same as without tags.
    load_frame(a, ETHERNET_HEADER, others);
    let (v4, v6, arp, compare) = (a.label(), a.label(), a.label(), a.label());
    for _ in 0..2 {
        let (tagged, untagged) = (a.label(), a.label());
        a.load(Size::U16, R4, R2, ETHERTYPE_AT);
        TAGS.into_iter().for_each(|tag| _ = a.jump_if(Cond::Eq, R4, ethertype(tag), tagged));
        a.jump(untagged).bind(tagged).add(R2, TAG);
        a.mov(R5, R2).add(R5, ETHERNET_HEADER).jump_if(Cond::Gt, R5, R3, others);
        a.bind(untagged);
    }
    a.load(Size::U16, R4, R2, ETHERTYPE_AT).jump_if(Cond::Eq, R4, ethertype(IPV4), v4);
    a.jump_if(Cond::Eq, R4, ethertype(ARP), arp).jump_if(Cond::Eq, R4, ethertype(IPV6), v6);
    if ranges.labels {
        a.jump_if(Cond::Eq, R4, ethertype(MPLS), own);
    }
    a.jump(others);

    let bounded = |a: &mut Asm, octets: i32| {
        a.mov(R5, R2).add(R5, ETHERNET_HEADER + octets).jump_if(Cond::Gt, R5, R3, others);
    };
    a.bind(v4);
    bounded(a, 20);
    a.load(Size::U32, R4, R2, 14 + 16).jump(compare);
    // The target is the requested host in a request, and the requesting host in a reply.
    a.bind(arp);
    bounded(a, 28);
    a.load(Size::U32, R4, R2, 14 + 24);
    a.bind(compare).to_big_endian(R4, 32);
    for &(first, last) in &ranges.v4 {
        let next = a.label();
        a.mov64(R5, first.into()).jump_if(Cond::Lt, R4, R5, next);
        a.mov64(R5, last.into()).jump_if(Cond::Le, R4, R5, own).bind(next);
    }
    a.jump(others);

    a.bind(v6);
    bounded(a, IPV6_HEADER);
    compare_v6(a, 14 + 24, ranges, own);
    a.load(Size::U8, R4, R2, 14 + 6).jump_if(Cond::Ne, R4, i32::from(ICMPV6), others);
    bounded(a, IPV6_HEADER + 24);
    a.load(Size::U8, R4, R2, 14 + 40).jump_if(
        Cond::Ne,
        R4,
        i32::from(NEIGHBOR_SOLICITATION),
        others,
    );
    compare_v6(a, 14 + 40 + 8, ranges, own);
    a.jump(others);
}

const ICMPV6: u8 = 58;
/// RFC 4861 §4.3.
const NEIGHBOR_SOLICITATION: u8 = 135;

/// Jumps to `own` if the address at `at` of the frame is within `ranges`.
fn compare_v6(a: &mut Asm, at: i16, ranges: &Ranges, own: Label) {
    a.load(Size::U64, R4, R2, at)
        .to_big_endian(R4, 64)
        .load(Size::U64, R7, R2, at + 8)
        .to_big_endian(R7, 64);
    for &(first, last) in &ranges.v6 {
        let (above, next) = (a.label(), a.label());
        let halves = |address: u128| ((address >> 64) as u64, address as u64);
        let ((first, first_low), (last, last_low)) = (halves(first), halves(last));
        a.mov64(R5, first).jump_if(Cond::Lt, R4, R5, next).jump_if(Cond::Ne, R4, R5, above);
        a.mov64(R5, first_low).jump_if(Cond::Lt, R7, R5, next);
        a.bind(above).mov64(R5, last).jump_if(Cond::Gt, R4, R5, next).jump_if(
            Cond::Ne,
            R4,
            R5,
            own,
        );
        a.mov64(R5, last_low).jump_if(Cond::Le, R7, R5, own).bind(next);
    }
}

fn is_udp(a: &mut Asm, port: u16, udp: Label, other: Label) {
    const UDP_HEADER: i32 = 8;
    let (ipv6, wanted) = (a.label(), i32::from(port.to_be()));
    let ethertype = |t: u16| i32::from(t.to_be());
    load_frame(a, ETHERNET_HEADER + 20 + UDP_HEADER, other);
    a.load(Size::U16, R4, R2, ETHERTYPE_AT).jump_if(Cond::Eq, R4, ethertype(0x86dd), ipv6);
    a.jump_if(Cond::Ne, R4, ethertype(0x0800), other);
    a.load(Size::U8, R4, R2, 14 + 9).jump_if(Cond::Ne, R4, UDP, other);
    // Only the first fragment has ports.
    a.load(Size::U16, R4, R2, 14 + 6).jump_if(Cond::Set, R4, i32::from(0x1fffu16.to_be()), other);
    a.load(Size::U8, R4, R2, 14).and(R4, 15).shift_left(R4, 2).add(R2, R4);
    a.mov(R4, R2).add(R4, ETHERNET_HEADER + UDP_HEADER).jump_if(Cond::Gt, R4, R3, other);
    a.load(Size::U16, R4, R2, 14 + 2).jump_if(Cond::Eq, R4, wanted, udp).jump(other);
    a.bind(ipv6);
    load_frame(a, ETHERNET_HEADER + size_of::<Ipv6Addr>() as i32 * 2 + 8 + UDP_HEADER, other);
    a.load(Size::U8, R4, R2, 14 + 6).jump_if(Cond::Ne, R4, UDP, other);
    a.load(Size::U16, R4, R2, 14 + 40 + 2).jump_if(Cond::Eq, R4, wanted, udp).jump(other);
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use squall_units::signature_check;

    use super::*;

    const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);

    /// Whether the program takes `frame`; there are no sockets, so all frames pass in the end.
    fn takes(receiving: &Receiving, frame: &[u8]) -> bool {
        let counts = || {
            let word = |at: usize| receiving.counters.0.word(at).load(Ordering::Relaxed);
            [word(PASSED), word(UNCLAIMED), word(PASSED_OCTETS)]
        };
        let before = counts();
        assert_eq!(
            receiving.program.run_once(frame).expect("the kernel runs it"),
            xdp_action::PASS as u32
        );
        let now = counts();
        let octets = now[2] - before[2];
        assert_eq!((now[0] + now[1], octets), (before[0] + before[1] + 1, frame.len() as u64));
        now[1] > before[1]
    }

    fn frame(to: [u8; 6], len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        octets[..6].copy_from_slice(&to);
        octets[12..15].copy_from_slice(&[8, 0, 0x45]);
        octets[23] = 17;
        octets[36..38].copy_from_slice(&5002u16.to_be_bytes());
        octets
    }

    fn sign(octets: Vec<u8>) -> Vec<u8> {
        sign_at(octets, 0x1234_5678_9abc_def0)
    }

    fn sign_at(mut octets: Vec<u8>, low: u64) -> Vec<u8> {
        let high = 0x0001_0007_u64;
        let at = octets.len() - 16;
        octets[at..at + 8]
            .copy_from_slice(&(u64::from(signature_check(high, low)) << 32 | high).to_be_bytes());
        octets[at + 8..].copy_from_slice(&low.to_be_bytes());
        octets
    }

    #[test]
    fn frames_for_the_host_pass() {
        let other = [2, 0, 0, 0, 0, 0x0c];
        let broadcast = [0xff; 6];
        let load = |take| Receiving::load(&take, Some(HOST), 4);
        let test = match load(Take::Test) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return println!("SKIPPED: {error}");
            }
            loaded => loaded.unwrap(),
        };
        test.counters().expect(Some(0));
        for len in [60, 64, 61, 1514] {
            assert!(takes(&test, &frame(other, len)), "to another station");
            for host in [HOST.0, broadcast, [0x33, 0x33, 0, 0, 0, 1]] {
                assert!(!takes(&test, &frame(host, len)), "to the host");
                assert!(takes(&test, &sign(frame(host, len))), "signed");
            }
        }
        // The same frame again is not a second frame of a run.
        let signed = load(Take::Signed).unwrap();
        let mine = sign(frame(HOST.0, 60));
        let next = sign_at(mine.clone(), 0x1234_5678_9abc_def7);
        assert_eq!(
            [&mine, &mine, &next, &mine].map(|one| takes(&signed, one)),
            [true, false, true, true]
        );
        let keyed = load(Take::Signed).unwrap();
        keyed.counters().expect(Some(0));
        assert!(takes(&keyed, &mine) && takes(&keyed, &mine));
        keyed.counters().expect(Some(5));
        assert!(!takes(&keyed, &mine));
        let signed = load(Take::Signed).unwrap();
        assert!(takes(&signed, &sign(frame(HOST.0, 60))) && !takes(&signed, &frame(other, 60)));
        let mut altered = sign(frame(HOST.0, 60));
        altered[59] ^= 1;
        assert!(!takes(&signed, &altered));
        let udp = load(Take::Udp(5002)).unwrap();
        assert!(takes(&udp, &frame(HOST.0, 60)));
        let mut elsewhere = frame(HOST.0, 60);
        elsewhere[37] ^= 1;
        assert!(!takes(&udp, &elsewhere));
        let mut with_option = frame(HOST.0, 64);
        with_option[14] = 0x46;
        assert!(!takes(&udp, &with_option));
        with_option[40..42].copy_from_slice(&5002u16.to_be_bytes());
        assert!(takes(&udp, &with_option));
        let mut ipv6 = frame(HOST.0, 70);
        ipv6[12..14].copy_from_slice(&[0x86, 0xdd]);
        (ipv6[20], ipv6[56], ipv6[57]) = (17, 0x13, 0x8a);
        assert!(takes(&udp, &ipv6) && !takes(&udp, &ipv6[..61]));
        let all = load(Take::All).unwrap();
        assert!(takes(&all, &frame(HOST.0, 60)));
    }

    fn hosts(ranges: &[(&str, &str)]) -> Hosts {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let addresses = ranges.iter().map(|(first, last)| address(first)..=address(last)).collect();
        Hosts { addresses, ..Hosts::default() }
    }

    /// A packet to `to` in a frame to the host's MAC address, after `tags`.
    fn packet(to: &str, tags: &[u16]) -> Vec<u8> {
        let mut octets = [HOST.0.as_slice(), &[2; 6]].concat();
        tags.iter().for_each(|tag| octets.extend([tag.to_be_bytes(), [0, 7]].concat()));
        let (kind, at, to) = match to.parse().expect("an address") {
            IpAddr::V4(to) => (IPV4, 16, to.octets().to_vec()),
            IpAddr::V6(to) => (IPV6, 24, to.octets().to_vec()),
        };
        octets.extend(kind.to_be_bytes());
        let packet = octets.len();
        octets.resize(packet + 60, 0);
        octets[packet + at..][..to.len()].copy_from_slice(&to);
        octets
    }

    #[test]
    fn own_hosts_get_their_packets_and_the_machine_keeps_the_rest() {
        let ranges = [
            ("10.0.0.5", "10.0.0.9"),
            ("200.0.0.1", "200.0.0.1"),
            ("fd00::fffe", "fd00::1:1"),
            ("fd00::9:0:0:0:0", "fd00:0:0:a::"),
        ];
        let taking = match Receiving::load(
            &Take::Hosts(super::ranges(&hosts(&ranges)).unwrap()),
            Some(HOST),
            4,
        ) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return println!("SKIPPED: {error}");
            }
            loaded => loaded.unwrap(),
        };
        let own = [
            "10.0.0.5",
            "10.0.0.9",
            "200.0.0.1",
            "fd00::fffe",
            "fd00::ffff",
            "fd00::1:0",
            "fd00::1:1",
        ];
        let of_two_halves = ["fd00:0:0:9::", "fd00:0:0:9:1::7", "fd00:0:0:a::"];
        let others = [
            "10.0.0.4",
            "10.0.0.10",
            "200.0.0.0",
            "200.0.0.2",
            "fd00::fffd",
            "fd00::1:2",
            "fd00:0:0:a::1",
            "fd01::1:0",
            "fc00::1:0",
        ];
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
            for to in own.iter().chain(&of_two_halves) {
                assert!(takes(&taking, &packet(to, tags)), "{to} {tags:x?}");
            }
            for to in others {
                assert!(!takes(&taking, &packet(to, tags)), "{to} {tags:x?}");
            }
        }
        // An ARP request for 10.0.0.5, and a neighbor solicitation for fd00::ffff, to a multicast
        // group of many hosts.
        let mut arp = packet("0.0.0.0", &[]);
        arp[12..14].copy_from_slice(&ARP.to_be_bytes());
        arp[38..42].copy_from_slice(&[10, 0, 0, 5]);
        assert!(takes(&taking, &arp));
        arp[41] = 4;
        assert!(!takes(&taking, &arp));
        let mut solicitation = packet("ff02::1:ff00:ffff", &[]);
        solicitation.resize(14 + 40 + 24, 0);
        (solicitation[20], solicitation[54]) = (ICMPV6, NEIGHBOR_SOLICITATION);
        let target: Ipv6Addr = "fd00::ffff".parse().unwrap();
        solicitation[62..78].copy_from_slice(&target.octets());
        assert!(takes(&taking, &solicitation) && !takes(&taking, &solicitation[..77]));
        solicitation[54] += 1;
        assert!(!takes(&taking, &solicitation), "an advertisement to all");
        assert!(!takes(&taking, &packet("10.0.0.5", &[])[..33]), "a part of a header");
    }

    #[test]
    fn a_port_that_hosts_share_also_gets_its_frames_of_a_test() {
        let shared =
            Hosts { shared: true, ..hosts(&[("10.0.0.5", "10.0.0.9"), ("fd00::1", "fd00::2")]) };
        let take = Take::Hosts(super::ranges(&shared).unwrap());
        let taking = match Receiving::load(&take, Some(HOST), 4) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return println!("SKIPPED: {error}");
            }
            loaded => loaded.unwrap(),
        };
        assert!(
            takes(&taking, &packet("10.0.0.5", &[])) && takes(&taking, &packet("fd00::2", &[]))
        );
        assert!(!takes(&taking, &packet("10.0.0.4", &[])), "the machine keeps its own");
        assert!(takes(&taking, &frame([2, 9, 9, 9, 9, 9], 60)), "to another station");
        assert!(takes(&taking, &sign(frame(HOST.0, 76))), "with a signature");
        assert!(!takes(&taking, &frame(HOST.0, 60)));
    }

    #[test]
    fn ranges_that_touch_are_one_and_too_many_are_refused() {
        let touching =
            hosts(&[("10.0.0.5", "10.0.0.9"), ("10.0.0.0", "10.0.0.4"), ("10.0.0.2", "10.0.0.3")]);
        let joined = super::ranges(&touching).unwrap();
        assert_eq!(joined.v4, [(0x0a00_0000, 0x0a00_0009)]);
        for (last, covered) in [("10.0.0.9", true), ("10.0.0.10", false)] {
            let asked = super::ranges(&hosts(&[("10.0.0.3", last)])).unwrap();
            assert_eq!(joined.cover(&asked), covered, "{last}");
        }
        let single = |i: u32| IpAddr::from((0x0a00_0000 + 2 * i).to_be_bytes());
        let single6 = |i: u32| IpAddr::V6(Ipv6Addr::from_bits(0xfd << 120 | u128::from(i) << 63));
        let many = |n: u32, single: &dyn Fn(u32) -> IpAddr| Hosts {
            addresses: (0..n).map(|i| single(i)..=single(i)).collect(),
            labels: true,
            shared: true,
            datagrams: false,
            workers: 1,
        };
        for single in [&single as &dyn Fn(u32) -> IpAddr, &single6] {
            let most = super::ranges(&many(MAX_RANGES as u32, single)).unwrap();
            match Receiving::load(&Take::Hosts(most), Some(HOST), 4) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return println!("SKIPPED: {error}");
                }
                loaded => _ = loaded.unwrap(),
            }
        }
        assert!(
            super::ranges(&many(MAX_RANGES as u32 + 1, &single)).unwrap_err().contains("take=all")
        );
    }

    #[test]
    fn filters_are_read() {
        assert_eq!("udp/53".parse(), Ok(Take::Udp(53)));
        assert!(
            ["", "udp", "udp/", "udp/70000", "everything"]
                .iter()
                .all(|t| t.parse::<Take>().is_err())
        );
    }
}
