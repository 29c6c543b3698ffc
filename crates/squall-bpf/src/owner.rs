//! The worker that a flow belongs to, determined by the flow's two endpoints, the same for sent and
//! received packets ([`of_ends`]); and a program for the kernel ([`program`]).

use std::net::IpAddr;

use crate::classic::Instruction;

/// Multipliers. They are odd, so no bit is lost: the golden ratio, and primes of the kind that
/// xxHash uses.
const ADDRESS_FACTOR: u32 = 0x9e37_79b1;
const PORT_FACTOR: u32 = 0x85eb_ca77;
const FINAL_FACTOR: u32 = 0xc2b2_ae3d;

/// The worker (below `workers`) of the flow between two endpoints (address and port), in either
/// order.
#[inline]
pub fn of_ends(one: (IpAddr, u16), other: (IpAddr, u16), workers: u32) -> u32 {
    if workers < 2 {
        return 0;
    }
    let words = words(one.0).wrapping_add(words(other.0));
    from_sums(words, u32::from(one.1) + u32::from(other.1), workers)
}

/// As [`of_ends`], given the sum of the 32-bit words of both addresses and the sum of both ports.
#[inline]
pub fn from_sums(addresses: u32, ports: u32, workers: u32) -> u32 {
    let mixed =
        addresses.wrapping_mul(ADDRESS_FACTOR).wrapping_add(ports.wrapping_mul(PORT_FACTOR));
    let mixed = (mixed ^ (mixed >> 16)).wrapping_mul(FINAL_FACTOR);
    (mixed >> 16) % workers.max(1)
}

#[inline]
fn words(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => {
            let of = |shift: u32| (address.to_bits() >> shift) as u32;
            of(0).wrapping_add(of(32)).wrapping_add(of(64)).wrapping_add(of(96))
        }
    }
}

/// The form in which a program sees the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketView {
    /// The octets of an Ethernet frame.
    Frame,
    /// A received packet as Linux shows it to the fanout group of a packet socket: without its VLAN
    /// tag; its protocol and network header have offsets of their own (`SKF_AD_PROTOCOL`,
    /// `SKF_NET_OFF`).
    Socket,
}

/// `SKF_AD_OFF + SKF_AD_PROTOCOL`, and `SKF_NET_OFF`.
const SOCKET_PROTOCOL: u32 = -0x1000i32 as u32;
const SOCKET_NETWORK: u32 = -0x10_0000i32 as u32;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_OCTET: u16 = 0x30;
const LOAD_HALF_AT_X: u16 = 0x48;
const HEADER_TO_X: u16 = 0xb1;
const STORE: u16 = 0x02;
const MEMORY_TO_X: u16 = 0x61;
const SET_X: u16 = 0x01;
const ADD_X: u16 = 0x0c;
const MULTIPLY: u16 = 0x24;
const XOR_X: u16 = 0xac;
const SHIFT_RIGHT: u16 = 0x74;
const REMAINDER: u16 = 0x94;
const IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const RETURN_A: u16 = 0x16;

/// A program that returns the worker of a TCP segment or UDP datagram, and 0 for everything else.
/// Skips up to one VLAN tag in the octets.
pub fn program(workers: u32, sight: PacketView) -> Vec<Instruction> {
    let (kind, size, network) = match sight {
        PacketView::Frame => (12, LOAD_HALF, 14),
        PacketView::Socket => (SOCKET_PROTOCOL, LOAD_WORD, SOCKET_NETWORK),
    };
    let mut all = vec![plain(size, kind)];
    all.extend(of_packet(network, workers));
    // After a VLAN tag, reads the protocol.
    let mut tagged = vec![plain(LOAD_HALF, network.wrapping_add(2))];
    tagged.extend(of_packet(network.wrapping_add(4), workers));
    tagged.push(plain(RETURN, 0));
    all.push(equal(0x88a8, 1, 0));
    all.push(equal(0x8100, 0, tagged.len()));
    all.extend(tagged);
    all.push(plain(RETURN, 0));
    all
}

/// Returns the worker if the accumulator holds the EtherType of IPv4 or IPv6; otherwise the program
/// continues.
fn of_packet(at: u32, workers: u32) -> Vec<Instruction> {
    let mut all = Vec::new();
    let ways = [
        (0x0800, of_ip(at.wrapping_add(9), at.wrapping_add(12), 2, None, at, workers)),
        (0x86dd, of_ip(at.wrapping_add(6), at.wrapping_add(8), 8, Some(40), at, workers)),
    ];
    for (kind, block) in ways {
        all.push(equal(kind, 0, block.len()));
        all.extend(block);
    }
    all
}

/// `header`: length of the header, if it is fixed.
fn of_ip(
    protocol: u32,
    addresses: u32,
    words: u32,
    header: Option<u32>,
    at: u32,
    workers: u32,
) -> Vec<Instruction> {
    let mut all = vec![
        plain(LOAD_OCTET, protocol),
        equal(17, 2, 0),
        equal(6, 1, 0),
        plain(RETURN, 0),
        plain(LOAD_WORD, addresses),
    ];
    for word in 1..words {
        all.push(plain(STORE, 0));
        all.push(plain(LOAD_WORD, addresses.wrapping_add(4 * word)));
        all.extend([plain(MEMORY_TO_X, 0), plain(ADD_X, 0)]);
    }
    all.extend([plain(MULTIPLY, ADDRESS_FACTOR), plain(STORE, 0)]);
    all.push(match header {
        Some(octets) => plain(SET_X, octets),
        None => plain(HEADER_TO_X, at),
    });
    all.extend([
        plain(LOAD_HALF_AT_X, at),
        plain(STORE, 1),
        plain(LOAD_HALF_AT_X, at.wrapping_add(2)),
        plain(MEMORY_TO_X, 1),
        plain(ADD_X, 0),
        plain(MULTIPLY, PORT_FACTOR),
        plain(MEMORY_TO_X, 0),
        plain(ADD_X, 0),
        plain(STORE, 0),
        plain(SHIFT_RIGHT, 16),
        plain(MEMORY_TO_X, 0),
        plain(XOR_X, 0),
        plain(MULTIPLY, FINAL_FACTOR),
        plain(SHIFT_RIGHT, 16),
        plain(REMAINDER, workers.max(1)),
        plain(RETURN_A, 0),
    ]);
    all
}

fn plain(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

/// Jumps over `then` instructions if the accumulator is `k`, otherwise over `otherwise`.
fn equal(k: u32, then: usize, otherwise: usize) -> Instruction {
    let over = |n: usize| u8::try_from(n).expect("blocks are short");
    Instruction { code: IF_EQUAL, jt: over(then), jf: over(otherwise), k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classic::Filter;

    fn frame(one: (IpAddr, u16), other: (IpAddr, u16), protocol: u8, options: usize) -> Vec<u8> {
        let mut frame = vec![0; 12];
        match (one.0, other.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend([0x08, 0x00]);
                let mut header = vec![0; 20 + options];
                header[0] = 0x40 | (header.len() / 4) as u8;
                header[9] = protocol;
                header[12..16].copy_from_slice(&from.octets());
                header[16..20].copy_from_slice(&to.octets());
                frame.extend(header);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xdd]);
                let mut header = vec![0; 40];
                header[6] = protocol;
                header[8..24].copy_from_slice(&from.octets());
                header[24..40].copy_from_slice(&to.octets());
                frame.extend(header);
            }
            _ => unreachable!(),
        }
        frame.extend(one.1.to_be_bytes());
        frame.extend(other.1.to_be_bytes());
        frame.extend([0; 8]);
        frame
    }

    fn ends(number: u32) -> [((IpAddr, u16), (IpAddr, u16)); 2] {
        let far = number.wrapping_mul(0x9e37);
        let v4 = |n: u32| IpAddr::V4((0x1000_0000 + n).into());
        let v6 = |n: u32| IpAddr::V6((0xfd00 << 112 | u128::from(n) << 37 | u128::from(n)).into());
        let ports = (1024 + (number % 60_000) as u16, 80);
        [((v4(number), ports.0), (v4(far), ports.1)), ((v6(number), ports.0), (v6(far), ports.1))]
    }

    #[test]
    fn program_and_function_agree_in_both_directions() {
        for workers in [1, 2, 3, 7, 64] {
            let filter = Filter::new(program(workers, PacketView::Frame)).unwrap();
            for (one, other) in (0..500).flat_map(ends) {
                let owner = of_ends(one, other, workers);
                assert_eq!(owner, of_ends(other, one, workers));
                for (protocol, options) in [(6, 0), (17, 0), (6, 12)] {
                    for frame in
                        [frame(one, other, protocol, options), frame(other, one, protocol, options)]
                    {
                        let len = frame.len() as u32;
                        assert_eq!(filter.run(&frame, len), owner, "{one:?} {other:?}");
                        let mut tagged = frame.clone();
                        tagged.splice(12..12, [0x81, 0x00, 0, 5]);
                        assert_eq!(filter.run(&tagged, len + 4), owner, "tagged");
                    }
                }
            }
        }
    }

    #[test]
    fn frames_without_a_flow_go_to_the_first_worker() {
        let filter = Filter::new(program(8, PacketView::Frame)).unwrap();
        let [(one, other), _] = ends(3);
        assert_eq!(filter.run(&frame(one, other, 1, 0), 60), 0);
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(filter.run(&arp, 60), 0);
    }

    #[test]
    fn no_worker_has_much_more_than_its_share() {
        // Patterns of real loads: many clients, one client's ports, servers in turn.
        let client = |n: u32| IpAddr::V4((0x1000_0001 + n).into());
        let server = |n: u32| IpAddr::V4((0x3000_0001 + n).into());
        type Ends = fn(u32) -> (u32, u16, u32);
        let patterns: [(&str, Ends); 4] = [
            ("clients", |k| (k % 254, 1024 + (k / 254) as u16, 0)),
            ("ports", |k| (0, 1024 + k as u16, 0)),
            ("clients and servers in step", |k| (k % 256, 1024 + (k / 256) as u16, k % 256)),
            ("servers", |k| (0, 1024, k)),
        ];
        for workers in [2, 3, 4, 8] {
            for (name, ends) in patterns {
                let mut counts = vec![0u32; workers as usize];
                for k in 0..20_000 {
                    let (c, port, s) = ends(k);
                    counts[of_ends((client(c), port), (server(s), 80), workers) as usize] += 1;
                }
                let fair = 20_000.0 / f64::from(workers);
                let most = f64::from(*counts.iter().max().unwrap()) / fair;
                assert!(most < 1.1, "{name} on {workers}: {counts:?}");
            }
        }
    }
}
