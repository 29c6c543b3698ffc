//! Edits the headers before the network header: link type, MAC addresses, VLAN tags.

use squall_measure::flow::ethertype;
use squall_units::be16;
use squall_wire::link::inner;

use crate::{
    Edits, Encapsulation, MacPair, Reason, Side, Vlan, VlanMode, anonymize::random_mac,
    frame::Frame,
};

pub const ETHERNET: u16 = 1;

/// MAC addresses for packets from links without addresses: the defaults of `eth` in packet text.
const DST: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SRC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Whether this EtherType begins a tag of four octets.
pub fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ethertype::VLAN | ethertype::QINQ | 0x9100 | 0x9200)
}

/// Converts the packet to another link type. VLAN tags are lost unless that is Ethernet.
///
/// # Errors
/// [`Reason::NoPacket`] if there is no network packet, or the link cannot carry it.
pub fn convert(
    frame: &mut Frame,
    link_type: u16,
    to: Encapsulation,
    scratch: &mut Vec<u8>,
) -> Result<bool, Reason> {
    // Several numbers mean raw IP; their packets have the same format.
    if to.link_type() == link_type
        || to == Encapsulation::Raw && matches!(link_type, 12 | 14 | 228 | 229)
    {
        return Ok(false);
    }
    let found = inner(link_type, &frame.octets).map_err(|_| Reason::NoPacket)?;
    let (mut kind, mut at) = (found.ethertype, found.octets.start);
    if to != Encapsulation::Ethernet {
        while is_tag(kind) && at + 4 <= found.octets.end {
            (kind, at) = (be16(&frame.octets, at + 2), at + 4);
        }
    }
    scratch.clear();
    match to {
        Encapsulation::Ethernet => {
            scratch.extend_from_slice(&found.dst.unwrap_or(DST));
            scratch.extend_from_slice(&found.src.unwrap_or(SRC));
            scratch.extend_from_slice(&kind.to_be_bytes());
        }
        Encapsulation::CiscoHdlc if kind > 1500 => {
            // Address (unicast) and control (0). RFC 1547 does not have them, but Cisco and tcpdump
            // use them.
            scratch.extend_from_slice(&[0x0f, 0]);
            scratch.extend_from_slice(&kind.to_be_bytes());
        }
        Encapsulation::Ppp => {
            let protocol = match kind {
                ethertype::IPV4 => 0x0021_u16,
                ethertype::IPV6 => 0x0057,
                ethertype::MPLS => 0x0281,
                _ => return Err(Reason::NoPacket),
            };
            // HDLC's address and control fields (RFC 1662).
            scratch.extend_from_slice(&[0xff, 3]);
            scratch.extend_from_slice(&protocol.to_be_bytes());
        }
        Encapsulation::Raw if matches!(kind, ethertype::IPV4 | ethertype::IPV6) => {}
        Encapsulation::Raw | Encapsulation::CiscoHdlc => return Err(Reason::NoPacket),
    }
    scratch.extend_from_slice(&frame.octets[at..found.octets.end]);
    // The trailer of the old link is gone, so its missing octets do not count.
    frame.missing = if found.octets.end < frame.octets.len() { 0 } else { frame.missing };
    std::mem::swap(&mut frame.octets, scratch);
    Ok(true)
}

/// The MAC address for a multicast group (RFC 1112 §6.4, RFC 2464 §7); `None` if `address`, which
/// is in the upper bits, is not a group.
pub fn group_mac(v6: bool, address: u128) -> Option<[u8; 6]> {
    let octets = address.to_be_bytes();
    if v6 {
        let low = (octets[0] == 0xff).then(|| octets.last_chunk::<4>().expect("16 octets"));
        return low.map(|&[a, b, c, d]| [0x33, 0x33, a, b, c, d]);
    }
    let group = octets[0] >> 4 == 0xe;
    group.then_some([1, 0, 0x5e, octets[1] & 0x7f, octets[2], octets[3]])
}

/// # Errors
/// [`Reason::Headers`] if the addresses were not captured.
pub fn edit_macs(octets: &mut [u8], edits: &Edits, side: Option<Side>) -> Result<bool, Reason> {
    let addresses: &mut [u8; 12] = octets.first_chunk_mut().ok_or(Reason::Headers)?;
    let before = *addresses;
    let (dst, src) = addresses.split_at_mut(6);
    for (address, pair) in [(dst, edits.enet_dmac), (src, edits.enet_smac)] {
        let address: &mut [u8; 6] = address.try_into().expect("half of 12");
        if edits.skip_l2_broadcast && address[0] & 1 == 1 {
            continue;
        }
        if let Some(new) = pair.and_then(|MacPair { client, server }| match side {
            Some(Side::Server) => server,
            _ => Some(client),
        }) {
            *address = new.0;
        }
        if let Some(swap) = edits.enet_subsmac.iter().find(|swap| swap.from.0 == *address) {
            *address = swap.to.0;
        }
        if let Some(seed) = edits.enet_mac_seed {
            *address = random_mac(*address, edits.enet_mac_seed_keep_bytes, seed);
        }
    }
    Ok(*addresses != before)
}

/// # Errors
/// [`Reason::Headers`] if the Ethernet header was not captured.
pub fn edit_vlan(octets: &mut Vec<u8>, vlan: &Vlan) -> Result<bool, Reason> {
    if octets.len() < 14 {
        return Err(Reason::Headers);
    }
    let tagged = is_tag(be16(octets, 12));
    match vlan.mode {
        VlanMode::Add => {
            // Fields that are not given are those of the existing tag.
            let old = if tagged && octets.len() >= 16 { be16(octets, 14) } else { 0 };
            let len = octets.len();
            octets.resize(len + 4, 0);
            octets.copy_within(12..len, 16);
            let kind = if vlan.service { ethertype::QINQ } else { ethertype::VLAN };
            octets[12..14].copy_from_slice(&kind.to_be_bytes());
            octets[14..16].copy_from_slice(&tci(vlan, old).to_be_bytes());
        }
        VlanMode::Del if tagged && octets.len() >= 18 => {
            octets.copy_within(16.., 12);
            octets.truncate(octets.len() - 4);
        }
        VlanMode::Rewrite if tagged && octets.len() >= 16 => {
            let old = be16(octets, 14);
            let new = tci(vlan, old);
            octets[14..16].copy_from_slice(&new.to_be_bytes());
            return Ok(new != old);
        }
        _ if tagged => return Err(Reason::Headers),
        VlanMode::Del | VlanMode::Rewrite => return Ok(false),
    }
    Ok(true)
}

/// Tag control information: `old`, with the given fields replaced.
fn tci(vlan: &Vlan, old: u16) -> u16 {
    let tag = vlan.tag.unwrap_or(old & 0xfff);
    let cfi = vlan.cfi.map_or(old >> 12 & 1, u16::from);
    let pri = vlan.pri.map_or(old >> 13, u16::from);
    pri << 13 | cfi << 12 | tag
}
