//! Applies all edits to packets.

use squall_measure::flow::{FlowKey, FlowTable, Fragment, Headers, Link, protocol};
use squall_units::mix;
use squall_wire::tcp_flags::{ACK, SYN};

use crate::{
    Counts, EditError, Edits, FixLen, MAX_LEN, Meta, Operation, Reason, Side,
    counts::Done,
    fragment,
    frame::Frame,
    fuzz::{Fuzzed, fuzz},
    ip, link,
    network::Network,
    select::{Selection, retimed},
    sums,
};

/// The default MTU of tcprewrite.
const MTU: u32 = 1500;
/// Maximum number of host pairs whose client is remembered.
const PAIRS: usize = 1 << 20;

/// Edits packets of one link type, one by one.
pub struct Editor {
    edits: Edits,
    in_type: u16,
    out_type: u16,
    origin_ns: Option<u64>,
    selects: bool,
    retimes: bool,
    rewrites: bool,
    needs_side: bool,
    selection: Selection,
    network: Option<Network>,
    /// For each pair of addresses: whether the host with the lower address is the client.
    pairs: FlowTable<Option<bool>>,
    counts: Counts,
    /// The packet being edited. The buffer is reused for all packets.
    frame: Frame,
    scratch: Vec<u8>,
}

impl Editor {
    /// Creates an editor for packets of `link_type`, a number in the tcpdump.org list.
    ///
    /// # Errors
    /// An option contradicts another option or the link type.
    pub fn new(edits: &Edits, link_type: u16) -> Result<Self, EditError> {
        let out_type = edits.dlt.map_or(link_type, |dlt| dlt.link_type());
        check(edits, link_type, out_type)?;
        Ok(Self {
            in_type: link_type,
            out_type,
            origin_ns: None,
            selects: edits.selects(),
            retimes: edits.retimes(),
            rewrites: edits.rewrites(),
            needs_side: edits.needs_side(),
            selection: Selection::new(edits),
            network: edits.edits_network().then(|| Network::new(edits)),
            pairs: FlowTable::new(PAIRS, None),
            counts: Counts::default(),
            frame: Frame::default(),
            scratch: Vec::new(),
            edits: edits.clone(),
        })
    }

    /// The link type of edited packets.
    pub fn link_type(&self) -> u16 {
        self.out_type
    }

    /// Sets the start of the capture. Needed if packets of another link type precede those of this
    /// editor.
    pub fn set_origin(&mut self, time_ns: u64) {
        self.origin_ns.get_or_insert(time_ns);
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Calls `out` for each packet that replaces this one: not at all if it is dropped, once, or
    /// several times for fragments.
    #[inline]
    pub fn edit(&mut self, octets: &[u8], meta: Meta, out: &mut dyn FnMut(&[u8], Meta)) {
        self.counts.packets_in += 1;
        if !(self.selects || self.retimes || self.rewrites) {
            self.counts.packets_out += 1;
            return out(octets, meta);
        }
        self.edit_some(octets, meta, out);
    }

    fn edit_some(&mut self, octets: &[u8], mut meta: Meta, out: &mut dyn FnMut(&[u8], Meta)) {
        let origin_ns = *self.origin_ns.get_or_insert(meta.time_ns);
        let mut done = Done::default();
        if self.selects
            && let Some(operation) = self.selection.refuses(octets, &meta, origin_ns)
        {
            return self.counts.add(&done, Some(operation));
        }
        if self.retimes {
            let time_ns =
                retimed(meta.time_ns, origin_ns, self.edits.time_scale, self.edits.time_shift_ns);
            done.by(Operation::Time, time_ns != meta.time_ns);
            meta.time_ns = time_ns;
        }
        if !self.rewrites {
            self.counts.packets_out += 1;
            self.counts.add(&done, None);
            return out(octets, meta);
        }
        // Take the frame out of `self`, because the steps below borrow the rest of `self`.
        let mut frame = std::mem::take(&mut self.frame);
        frame.set(octets, meta.wire_len, Link::from(self.in_type));
        let dropped = self.rewrite(&mut frame, &meta, &mut done).err();
        if dropped.is_none() {
            let before = self.counts.packets_out;
            self.emit(&mut frame, meta, &mut done, out);
            debug_assert!(self.counts.packets_out > before, "what is not dropped comes out");
        }
        self.counts.add(&done, dropped);
        self.frame = frame;
    }

    /// # Errors
    /// The operation that drops the packet.
    fn rewrite(
        &mut self,
        frame: &mut Frame,
        meta: &Meta,
        done: &mut Done,
    ) -> Result<(), Operation> {
        let edits = &self.edits;
        if edits.efcs {
            let len = (frame.wire_len() as usize).saturating_sub(4);
            done.by(Operation::Efcs, frame.cut(len));
        }
        if edits.unfold && frame.missing > 0 {
            let len = frame.wire_len() as usize;
            if len <= MAX_LEN {
                frame.fill(len);
                done.by(Operation::Unfold, true);
            } else {
                done.refuse(Reason::TooLong);
            }
        }
        let mut side = meta.side;
        if self.needs_side && side.is_none() {
            let headers = Headers::parse(&frame.octets, frame.link);
            side = Some(side_of(&mut self.pairs, &headers, meta.time_ns));
        }
        if let Some(to) = edits.dlt {
            match link::convert(frame, self.in_type, to, &mut self.scratch) {
                Ok(changed) => done.by(Operation::Dlt, changed),
                Err(reason) => {
                    done.refuse(reason);
                    return Err(Operation::Dlt);
                }
            }
            frame.link = Link::from(self.out_type);
        }
        if edits.edits_macs() {
            match link::edit_macs(&mut frame.octets, edits, side) {
                Ok(changed) => done.by(Operation::Macs, changed),
                Err(reason) => done.refuse(reason),
            }
        }
        if let Some(vlan) = &edits.vlan {
            match link::edit_vlan(&mut frame.octets, vlan) {
                Ok(changed) => done.by(Operation::Vlan, changed),
                Err(reason) => done.refuse(reason),
            }
        }
        frame.parse();
        // Raw IP ends with the packet, so remove Ethernet's padding.
        if edits.dlt.is_some() && self.out_type != link::ETHERNET && frame.is_ip() {
            let end = frame.ip_end();
            frame.cut(end);
            frame.parse();
        }
        // Like tcprewrite, give truncated or padded packets new checksums.
        let mut fix = edits.fixcsum;
        if edits.edits_lengths() {
            fix |= self.edit_lengths(frame, done)?;
        }
        if let Some(network) = &mut self.network {
            network.edit(frame, side, done);
        }
        if let Some(seed) = self.edits.fuzz_seed {
            match fuzz(frame, meta.number, seed, self.edits.fuzz_factor.unwrap_or(8)) {
                Fuzzed::No => {}
                Fuzzed::Drop => return Err(Operation::Fuzz),
                Fuzzed::Octets => {
                    done.by(Operation::Fuzz, true);
                    fix = true;
                }
                Fuzzed::Shorter(len) => {
                    let end = frame.headers.network as usize + len;
                    frame.cut(end);
                    self.set_ip_len(frame, len);
                    done.by(Operation::Fuzz, true);
                    fix = true;
                }
            }
        }
        if fix && frame.is_ip() {
            let (changed, unknown) = sums::fix(&mut frame.octets, &frame.headers);
            done.by(Operation::Fixcsum, changed && self.edits.fixcsum);
            match unknown {
                Some(sums::Unknown::Cut) => done.refuse(Reason::Cut),
                Some(sums::Unknown::Routed) => done.refuse(Reason::Routed),
                None => {}
            }
        }
        Ok(())
    }

    /// Applies the edits that change lengths. Returns whether the IP payload changed.
    ///
    /// # Errors
    /// The operation that drops the packet.
    fn edit_lengths(&self, frame: &mut Frame, done: &mut Done) -> Result<bool, Operation> {
        let edits = &self.edits;
        let mtu = edits.mtu.unwrap_or(MTU) as usize;
        let network = frame.headers.network as usize;
        let mut carried = false;
        if let Some(fixlen) = edits.fixlen
            && frame.is_ip()
        {
            let end = frame.ip_end();
            if end > frame.octets.len() {
                let len = match fixlen {
                    FixLen::Del => return Err(Operation::Fixlen),
                    FixLen::Pad => end.min(network + mtu).max(frame.octets.len()),
                    FixLen::Trunc => frame.octets.len(),
                };
                frame.fill(len);
                frame.missing = 0;
                if len < end {
                    self.set_ip_len(frame, len - network);
                }
                done.by(Operation::Fixlen, true);
                carried = true;
                frame.parse();
            }
        }
        if edits.mtu_trunc && frame.is_ip() && frame.ip_end() > network + mtu {
            carried |= self.cut_ip(frame, network + mtu, done);
            done.by(Operation::MtuTrunc, true);
        }
        if let Some(len) = edits.truncate.map(|len| len as usize)
            && frame.wire_len() as usize > len
        {
            if frame.is_ip() && frame.ip_end() > len {
                carried |= self.cut_ip(frame, len, done);
            } else {
                frame.cut(len);
                frame.parse();
            }
            done.by(Operation::Truncate, true);
        }
        if let Some(len) = edits.pad.map(|len| len as usize)
            && (frame.wire_len() as usize) < len
        {
            // If octets are already missing, padding after them would be missing as well.
            if frame.missing == 0 {
                frame.fill(len);
            } else {
                frame.missing = (len - frame.octets.len()) as u32;
            }
            done.by(Operation::Pad, true);
            frame.parse();
        }
        Ok(carried)
    }

    /// Truncates the packet to `end` octets, also on the wire. Adapts the length in the IP header
    /// if the header is complete.
    fn cut_ip(&self, frame: &mut Frame, end: usize, done: &mut Done) -> bool {
        let network = frame.headers.network as usize;
        frame.cut(end);
        let least = network + if frame.headers.key.version == 4 { 20 } else { 40 };
        if end < least || frame.octets.len() < least {
            done.refuse(Reason::Headers);
            frame.parse();
            return false;
        }
        self.set_ip_len(frame, end - network);
        true
    }

    /// Sets the length in the IP header, and in the UDP header accordingly. (tcprewrite keeps the
    /// UDP length, and hosts reject such a datagram.)
    fn set_ip_len(&self, frame: &mut Frame, len: usize) {
        let (network, transport) =
            (frame.headers.network as usize, frame.headers.transport as usize);
        ip::set_len(&mut frame.octets, frame.link, &frame.headers, len);
        let is_udp = frame.headers.key.protocol == protocol::UDP
            && frame.headers.fragment == Fragment::Whole;
        if is_udp && network + len >= transport + 8 && frame.octets.len() >= transport + 8 {
            let udp = (network + len - transport) as u16;
            frame.octets[transport + 4..transport + 6].copy_from_slice(&udp.to_be_bytes());
        }
        frame.parse();
    }

    fn emit(
        &mut self,
        frame: &mut Frame,
        meta: Meta,
        done: &mut Done,
        out: &mut dyn FnMut(&[u8], Meta),
    ) {
        let snaplen = self.edits.snaplen.map_or(usize::MAX, |len| len as usize);
        if let Some(mtu) = self.edits.fragment.map(|mtu| mtu as usize)
            && frame.is_ip()
        {
            let identification = mix(meta.number, 0x6964) as u32;
            match fragment::cuts(frame, mtu, identification) {
                Ok(None) => {}
                Ok(Some(cuts)) => {
                    done.by(Operation::Fragment, true);
                    let mut scratch = std::mem::take(&mut self.scratch);
                    cuts.each(&frame.octets, &mut scratch, |octets| {
                        self.counts.packets_out += 1;
                        let kept = &octets[..octets.len().min(snaplen)];
                        done.by(Operation::Snaplen, kept.len() < octets.len());
                        out(kept, Meta { wire_len: octets.len() as u32, ..meta });
                    });
                    self.scratch = scratch;
                    return;
                }
                Err(reason) => done.refuse(reason),
            }
        }
        self.counts.packets_out += 1;
        let kept = &frame.octets[..frame.octets.len().min(snaplen)];
        done.by(Operation::Snaplen, kept.len() < frame.octets.len());
        out(kept, Meta { wire_len: frame.wire_len(), ..meta });
    }
}

/// The side that sent the packet. The sender of a SYN is the client, and that of a SYN-ACK the
/// server; otherwise the host that sent first is the client.
fn side_of(pairs: &mut FlowTable<Option<bool>>, headers: &Headers, now_ns: u64) -> Side {
    let key = FlowKey {
        src: headers.key.src,
        dst: headers.key.dst,
        version: headers.key.version,
        ..FlowKey::default()
    };
    // A host that sends to itself is a client, and needs no entry.
    let (pair, swapped) = key.canonical();
    let Some(lower) = pairs.entry(&pair, now_ns) else { return Side::Client };
    let opens = headers.key.protocol == protocol::TCP && headers.tcp_flags & SYN != 0;
    let answers = opens && headers.tcp_flags & ACK != 0;
    // Once known, the side is fixed: an address must not change sides within a capture.
    let lower_is_client = *lower.get_or_insert(swapped == answers);
    if lower_is_client != swapped { Side::Client } else { Side::Server }
}

fn check(edits: &Edits, link_type: u16, out_type: u16) -> Result<(), EditError> {
    let wrong = |option, text: &str| Err(EditError { option, text: text.into() });
    if edits.pnat.len() > 2 {
        return wrong(
            "pnat",
            "given more than twice; expected one for all packets, or one for each side",
        );
    }
    let maps = [
        ("pnat", !edits.pnat.is_empty()),
        ("srcipmap", edits.srcipmap.is_some() || edits.dstipmap.is_some()),
        ("endpoints", edits.endpoints.is_some()),
    ];
    let mut given = maps.iter().filter(|(_, given)| *given);
    if let (Some((first, _)), Some((second, _))) = (given.next(), given.next()) {
        return wrong(second, &format!("cannot be combined with --{first}: both change addresses"));
    }
    if edits.anonymize.is_some() {
        let others = [("seed", edits.seed.is_some()), maps[0], maps[1], maps[2]];
        if let Some((other, _)) = others.iter().find(|(_, given)| *given) {
            return wrong(
                "anonymize",
                &format!(
                    "cannot be combined with --{other}, which does not preserve prefixes; try one \
                     after the other, with a file in between"
                ),
            );
        }
    }
    if edits.enet_mac_seed.is_some()
        && (edits.enet_dmac.is_some()
            || edits.enet_smac.is_some()
            || !edits.enet_subsmac.is_empty())
    {
        return wrong(
            "enet-mac-seed",
            "cannot be combined with --enet-dmac, --enet-smac or --enet-subsmac",
        );
    }
    if edits.enet_mac_seed_keep_bytes > 6 {
        return wrong(
            "enet-mac-seed-keep-bytes",
            "expected at most 6, the octets of a MAC address",
        );
    }
    if edits.fuzz_factor == Some(0) {
        return wrong("fuzz-factor", "is 0; expected 1 or more");
    }
    if out_type != link::ETHERNET {
        let given = [
            ("enet-dmac", edits.enet_dmac.is_some()),
            ("enet-smac", edits.enet_smac.is_some()),
            ("enet-subsmac", !edits.enet_subsmac.is_empty()),
            ("enet-mac-seed", edits.enet_mac_seed.is_some()),
            ("enet-vlan", edits.vlan.is_some()),
            ("efcs", edits.efcs && link_type != link::ETHERNET),
        ];
        if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
            return wrong(
                option,
                &format!(
                    "the packets have link type {out_type}, without an Ethernet header\n  try \
                     --dlt enet"
                ),
            );
        }
    }
    for (option, octets, least) in [
        ("mtu", edits.mtu, 1),
        ("fragment", edits.fragment, 28),
        ("truncate", edits.truncate, 1),
        ("pad", edits.pad, 1),
    ] {
        if octets.is_some_and(|octets| !(least..=0xffff).contains(&octets)) {
            return wrong(option, &format!("expected {least} to 65535 octets"));
        }
    }
    let reads_ip =
        edits.edits_network() || edits.edits_lengths() || edits.fixcsum || edits.fragment.is_some();
    if reads_ip && edits.dlt.is_none() && Link::from(link_type) == Link::Other {
        let option = if edits.fixcsum { "fixcsum" } else { "dlt" };
        return wrong(
            option,
            &format!(
                "cannot dissect packets of link type {link_type}\n  try --dlt enet, if they hold IP"
            ),
        );
    }
    Ok(())
}
