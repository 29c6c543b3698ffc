//! Any edits of any octets: there is no panic, correct checksums stay correct, and both directions
//! of a conversation still match.

use proptest::{collection::vec, option, prelude::*};
use squall_edit::{
    AddressMap, Editor, Edits, Encapsulation, Factor, FixLen, Key, MacPair, MacSwap, Meta, Numbers,
    Side, Vlan, VlanMode, When,
};
use squall_measure::flow::{Headers, Link};

use crate::packets::{L4, Spec, wrong};

fn meta(octets: &[u8], number: u64) -> Meta {
    Meta { time_ns: number * 1_000, wire_len: octets.len() as u32, number, side: None }
}

/// All packets by which the editor replaces this one.
fn edited(editor: &mut Editor, octets: &[u8], meta: Meta) -> Vec<(Vec<u8>, Meta)> {
    let mut out = Vec::new();
    editor.edit(octets, meta, &mut |octets, meta| out.push((octets.to_vec(), meta)));
    out
}

fn l4() -> impl Strategy<Value = L4> {
    let tcp = (any::<u32>(), any::<u32>(), option::of(any::<(u32, u32)>()))
        .prop_map(|(seq, ack, sack)| L4::Tcp { seq, ack, flags: 0x18, sack });
    prop_oneof![Just(L4::Udp), Just(L4::PlainUdp), tcp, Just(L4::Icmp), Just(L4::Sctp)]
}

fn spec() -> impl Strategy<Value = Spec> {
    (
        any::<bool>(),
        any::<bool>(),
        l4(),
        any::<(u16, u16)>(),
        0..3000_usize,
        0..3_usize,
        any::<bool>(),
    )
        .prop_map(|(v6, answer, l4, ports, payload, tags, mpls)| Spec {
            v6,
            answer,
            l4,
            ports,
            payload,
            tags,
            mpls,
        })
}

fn map() -> impl Strategy<Value = AddressMap> {
    prop_oneof![
        Just("10.0.0.0/8:172.16.0.0/12,[2001:db8::/32]:[fd00::/16]"),
        Just("0.0.0.0/0:1.2.3.0/24,[::/0]:[2001:db8:1::/64]"),
        Just("10.0.0.1:10.0.0.2,10.0.0.2:10.0.0.1"),
    ]
    .prop_map(|text| text.parse().unwrap())
}

prop_compose! {
    fn link_edits()(
        dmac in option::of(Just("00:11:22:33:44:55,00:11:22:33:44:66")), smac in option::of(Just("00:22:22:33:44:55")),
        swap in option::of(Just("02:00:00:00:00:01,02:00:00:00:00:09")), seed in option::of(any::<u64>()), keep in 0..=6_u8,
        mode in option::of(prop_oneof![Just(VlanMode::Add), Just(VlanMode::Del), Just(VlanMode::Rewrite)]),
        tag in option::of(0..4096_u16), pri in option::of(0..8_u8), service in any::<bool>(), skip in any::<bool>(),
        efcs in proptest::bool::weighted(0.1), unfold in any::<bool>(),
    ) -> Edits {
        Edits {
            enet_dmac: dmac.filter(|_| seed.is_none()).map(|text| text.parse().unwrap()),
            enet_smac: smac.filter(|_| seed.is_none()).map(|text| text.parse::<MacPair>().unwrap()),
            enet_subsmac: swap.filter(|_| seed.is_none()).iter().map(|text| text.parse::<MacSwap>().unwrap()).collect(),
            enet_mac_seed: seed,
            enet_mac_seed_keep_bytes: keep,
            vlan: mode.map(|mode| Vlan { mode, tag, cfi: None, pri, service }),
            skip_l2_broadcast: skip,
            efcs,
            unfold,
            ..Edits::default()
        }
    }
}

prop_compose! {
    fn network_edits()(
        kind in 0..7, first in map(), second in map(), seed in any::<u64>(), both in any::<bool>(),
        ttl in option::of(prop_oneof![Just("1"), Just("+200"), Just("-70")]), tos in option::of(any::<u8>()),
        tclass in option::of(any::<u8>()), label in option::of(0..0x10_0000_u32), skip in any::<bool>(),
        ports in option::of(prop_oneof![Just("80:8080"), Just("0-65535:7"), Just("1-9:11-19,0-65535:1")]),
        sequence in option::of(any::<u64>()),
    ) -> Edits {
        let mut edits = Edits {
            ttl: ttl.map(|text| text.parse().unwrap()),
            tos,
            tclass,
            flowlabel: label,
            portmap: ports.map(|text| text.parse().unwrap()),
            tcp_sequence: sequence,
            skip_broadcast: skip,
            ..Edits::default()
        };
        match kind {
            0 => edits.pnat = vec![first],
            1 => edits.pnat = vec![first, second],
            2 => edits.endpoints = Some("1.1.1.1:2.2.2.2".parse().unwrap()),
            3 => edits.endpoints = Some("[fd00::1]:[fd00::2]".parse().unwrap()),
            4 => (edits.srcipmap, edits.dstipmap) = (Some(first), both.then_some(second)),
            5 => edits.anonymize = Some(Key([7; 32])),
            _ => {}
        }
        edits.seed = (kind != 5 && both).then_some(seed);
        edits
    }
}

prop_compose! {
    fn all_edits()(
        link in link_edits(), network in network_edits(),
        dlt in option::weighted(0.3, prop_oneof![
            Just(Encapsulation::Ethernet), Just(Encapsulation::Raw), Just(Encapsulation::CiscoHdlc), Just(Encapsulation::Ppp)
        ]),
        fixlen in option::of(prop_oneof![Just(FixLen::Pad), Just(FixLen::Trunc), Just(FixLen::Del)]),
        mtu in option::of(1..2000_u32), mtu_trunc in any::<bool>(), truncate in option::weighted(0.2, 1..300_u32),
        pad in option::weighted(0.3, 1..300_u32), fixcsum in any::<bool>(), fuzz in option::of(any::<u64>()),
        fragment in option::of(28..1500_u32), snaplen in option::weighted(0.3, 0..200_u32),
        selects in any::<bool>(), scale in option::of((0..1000_u64, 1..1000_u64)), shift in any::<i64>(),
    ) -> Edits {
        Edits {
            dlt, fixlen, mtu, mtu_trunc, truncate, pad, fixcsum, fuzz_seed: fuzz, fuzz_factor: Some(2), fragment, snaplen,
            packets: selects.then(|| "1-3,5-".parse::<Numbers>().unwrap()),
            from: selects.then_some(When::After(0)),
            dedup: selects.then_some(3),
            time_scale: scale.map(|(num, den)| Factor { num, den }),
            time_shift_ns: shift,
            pnat: network.pnat, srcipmap: network.srcipmap, dstipmap: network.dstipmap, endpoints: network.endpoints,
            seed: network.seed, anonymize: network.anonymize, skip_broadcast: network.skip_broadcast, ttl: network.ttl,
            tos: network.tos, tclass: network.tclass, flowlabel: network.flowlabel, portmap: network.portmap,
            tcp_sequence: network.tcp_sequence,
            ..link
        }
    }
}

/// A packet in which some octets are overwritten, and which is truncated at any octet.
fn broken() -> impl Strategy<Value = (Vec<u8>, u32)> {
    let octets = (
        spec(),
        vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        any::<prop::sample::Index>(),
        any::<bool>(),
    )
        .prop_map(|(spec, writes, cut, cuts)| {
            let mut octets = spec.frame();
            for (at, octet) in writes {
                let at = at.index(octets.len().min(80));
                octets[at] = octet;
            }
            if cuts {
                octets.truncate(cut.index(octets.len()));
            }
            octets
        });
    (
        prop_oneof![3 => octets, 1 => vec(any::<u8>(), 0..200)],
        prop_oneof![Just(0), 0..3000_u32, Just(u32::MAX)],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, max_global_rejects: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn any_edit_of_any_octets_of_any_link_is_no_panic(
        edits in all_edits(), packets in vec(broken(), 1..5),
        link_type in prop_oneof![3 => Just(1_u16), 1 => prop::sample::select(vec![
            0, 6, 10, 12, 50, 51, 101, 104, 105, 107, 109, 113, 117, 122, 127, 228, 239, 242, 276,
        ])],
    ) {
        let Ok(mut editor) = Editor::new(&edits, link_type) else { return Ok(()) };
        for (number, (octets, missing)) in packets.iter().enumerate() {
            let wire_len = (octets.len() as u32).saturating_add(*missing);
            let out = edited(&mut editor, octets, Meta { wire_len, ..meta(octets, number as u64 + 1) });
            for (octets, meta) in &out {
                prop_assert!(octets.len() as u64 <= u64::from(meta.wire_len), "{} of {}", octets.len(), meta.wire_len);
            }
        }
        let counts = editor.counts();
        prop_assert_eq!(counts.packets_in, packets.len() as u64);
        prop_assert_eq!(counts.dropped, counts.dropped_by.iter().sum::<u64>());
        prop_assert!(counts.packets_out + counts.dropped >= counts.packets_in);
    }

    #[test]
    fn right_checksums_stay_right(mut edits in network_edits(), link in link_edits(), spec in spec()) {
        edits = Edits { efcs: false, ..Edits { enet_dmac: link.enet_dmac, vlan: link.vlan, ..edits } };
        let mut editor = Editor::new(&edits, 1).unwrap();
        let frame = spec.frame();
        prop_assert_eq!(wrong(&frame, Link::Ethernet), None);
        for (octets, _) in edited(&mut editor, &frame, meta(&frame, 1)) {
            prop_assert_eq!(wrong(&octets, Link::Ethernet), None, "{:?}", edits);
        }
    }

    #[test]
    fn wrong_checksums_stay_as_wrong_and_are_fixed_on_demand(edits in network_edits(), spec in spec(), by in 1..0xffff_u16) {
        prop_assume!(!matches!(spec.l4, L4::PlainUdp | L4::Sctp));
        let right = spec.frame();
        let headers = Headers::parse(&right, Link::Ethernet);
        let at = headers.transport as usize + match spec.l4 { L4::Tcp { .. } => 16, L4::Icmp => 2, _ => 6 };
        let field = |octets: &[u8]| {
            let at = Headers::parse(octets, Link::Ethernet).transport as usize + at - headers.transport as usize;
            u16::from_be_bytes([octets[at], octets[at + 1]])
        };
        // In ones' complement, 0xffff equals 0.
        let plus = |checksum: u16, by: u16| ((u32::from(checksum) + u32::from(by)) % 0xffff) as u16;
        let mut bad = right.clone();
        let written = plus(field(&right), by);
        prop_assume!(written != 0);
        bad[at..at + 2].copy_from_slice(&written.to_be_bytes());
        let run = |edits: &Edits, octets: &[u8]| edited(&mut Editor::new(edits, 1).unwrap(), octets, meta(octets, 1)).remove(0).0;
        let (of_right, of_bad) = (run(&edits, &right), run(&edits, &bad));
        prop_assert_eq!(plus(field(&of_right), by), field(&of_bad) % 0xffff);
        prop_assert_eq!(run(&Edits { fixcsum: true, ..edits }, &bad), of_right);
    }

    #[test]
    fn both_directions_of_a_conversation_stay_one(edits in network_edits(), spec in spec(), known in any::<bool>()) {
        // An edit of only one port or address creates another conversation, as intended.
        prop_assume!(edits.srcipmap.is_none());
        let mut editor = Editor::new(&edits, 1).unwrap();
        let side = |side| known.then_some(side);
        let [there, back] = [false, true].map(|answer| Spec { answer, ..spec }.frame());
        let mut key = |octets: &[u8], number, side| {
            let out = edited(&mut editor, octets, Meta { side, ..meta(octets, number) });
            Headers::parse(&out[0].0, Link::Ethernet).key
        };
        let first = key(&there, 1, side(Side::Client));
        let second = key(&back, 2, side(Side::Server));
        prop_assert_eq!(first.reversed(), second);
        prop_assert_eq!(key(&there, 3, side(Side::Client)), first);
    }

    #[test]
    fn shifted_numbers_and_acknowledgments_stay_consistent(seed in any::<u64>(), seq in any::<u32>(), len in 1..1000_u32, v6 in any::<bool>()) {
        let edits = Edits { tcp_sequence: Some(seed), pnat: vec!["10.0.0.0/8:11.0.0.0/8".parse().unwrap()], ..Edits::default() };
        let mut editor = Editor::new(&edits, 1).unwrap();
        let end = seq.wrapping_add(len);
        let data = Spec { payload: len as usize, v6, ..Spec::new(L4::Tcp { seq, ack: 5, flags: 0x18, sack: None }) };
        let ack = L4::Tcp { seq: 5, ack: seq, flags: 0x10, sack: Some((seq.wrapping_add(1), end)) };
        let ack = Spec { answer: true, v6, ..Spec::new(ack) };
        let mut numbers = |spec: Spec, number| {
            let frame = spec.frame();
            let (octets, _) = edited(&mut editor, &frame, meta(&frame, number)).remove(0);
            let at = Headers::parse(&octets, Link::Ethernet).transport as usize;
            let be32 = |at: usize| u32::from_be_bytes(octets[at..at + 4].try_into().unwrap());
            (be32(at + 4), be32(at + 8), if spec.answer { (be32(at + 24), be32(at + 28)) } else { (0, 0) })
        };
        let (new_seq, new_ack, _) = numbers(data, 1);
        let (their_seq, their_ack, sack) = numbers(ack, 2);
        prop_assert_eq!(their_ack, new_seq);
        prop_assert_eq!(new_ack, their_seq);
        prop_assert_eq!(sack, (new_seq.wrapping_add(1), new_seq.wrapping_add(len)));
    }

    #[test]
    fn a_map_and_its_reverse_give_the_original(spec in spec()) {
        let map: AddressMap = "10.0.0.0/8:11.0.0.0/8,[2001:db8::/32]:[fd00:1234::/32]".parse().unwrap();
        let back = map.reversed();
        let frame = spec.frame();
        // In ones' complement, 0xffff equals 0, and returns as 0. Only UDP's checksum is always
        // 0xffff.
        let run = |map: AddressMap, octets: &[u8]| {
            let mut editor = Editor::new(&Edits { pnat: vec![map], ..Edits::default() }, 1).unwrap();
            edited(&mut editor, octets, meta(octets, 1)).remove(0).0
        };
        let there = run(map, &frame);
        prop_assert_ne!(&there, &frame);
        prop_assert_eq!(run(back, &there), frame);
    }

    #[test]
    fn fragments_put_together_are_the_packet(spec in spec(), mtu in 68..1500_u32) {
        let frame = spec.frame();
        let mut editor = Editor::new(&Edits { fragment: Some(mtu), ..Edits::default() }, 1).unwrap();
        let out = edited(&mut editor, &frame, meta(&frame, 1));
        let network = Headers::parse(&frame, Link::Ethernet).network as usize;
        if frame.len() - network <= mtu as usize {
            prop_assert_eq!(&out, &[(frame.clone(), meta(&frame, 1))]);
            return Ok(());
        }
        let header = if spec.v6 { 40 } else { 20 };
        let mut data = Vec::new();
        for (i, (octets, meta)) in out.iter().enumerate() {
            prop_assert_eq!(meta.wire_len as usize, octets.len());
            prop_assert!(octets.len() - network <= mtu as usize);
            prop_assert_eq!(&octets[..network], &frame[..network]);
            prop_assert_eq!(Headers::parse(octets, Link::Ethernet).end as usize, octets.len());
            let (word, begin) = if spec.v6 {
                prop_assert_eq!((octets[network + 6], octets[network + 40]), (44, frame[network + 6]));
                let word = u16::from_be_bytes([octets[network + 42], octets[network + 43]]);
                (word & !7 | word & 1, network + 48)
            } else {
                prop_assert_eq!(wrong(octets, Link::Ethernet).filter(|what| what.contains("IPv4")), None);
                let word = u16::from_be_bytes([octets[network + 6], octets[network + 7]]);
                (word << 3 | word >> 13 & 1, network + 20)
            };
            prop_assert_eq!(usize::from(word & !7), data.len());
            prop_assert_eq!(word & 1 == 1, i + 1 < out.len());
            data.extend_from_slice(&octets[begin..]);
        }
        prop_assert_eq!(&data[..], &frame[network + header..]);
    }

    #[test]
    fn ethernet_to_another_link_and_back_keeps_the_packet(spec in spec(), to in prop::sample::select(vec![
        Encapsulation::Raw, Encapsulation::CiscoHdlc, Encapsulation::Ppp,
    ])) {
        let spec = Spec { mpls: false, ..spec };
        let frame = spec.frame();
        let mut there = Editor::new(&Edits { dlt: Some(to), ..Edits::default() }, 1).unwrap();
        let (octets, _) = edited(&mut there, &frame, meta(&frame, 1)).remove(0);
        let mut back = Editor::new(&Edits { dlt: Some(Encapsulation::Ethernet), ..Edits::default() }, there.link_type()).unwrap();
        let (octets, _) = edited(&mut back, &octets, meta(&octets, 1)).remove(0);
        prop_assert_eq!(&octets[14..], &spec.packet()[..]);
    }
}
