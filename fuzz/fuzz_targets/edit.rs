#![no_main]
//! Any edits of any packets: nothing panics, each packet is counted, and none is longer than its
//! original length. Input: 32 octets that select the edits, then packets, each preceded by its
//! length (16 bits) and the number of its missing octets (8 bits).

use libfuzzer_sys::fuzz_target;
use squall_edit::{
    Editor, Edits, Encapsulation, FixLen, Key, Meta, Side, Vlan, VlanMode, set_addresses,
};

fuzz_target!(|data: &[u8]| {
    let Some((choice, mut rest)) = data.split_first_chunk::<32>() else { return };
    let link_type = [1, 1, 1, 101, 113, 276, 0, 104, 50, 105, 127][usize::from(choice[0]) % 11];
    let Ok(mut editor) = Editor::new(&edits(choice), link_type) else { return };
    let (mut number, mut out) = (0, 0);
    while let [high, low, missing, after @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        let (octets, next) = after.split_at(len);
        rest = next;
        number += 1;
        let mut addressed = octets.to_vec();
        for address in ["10.9.8.7", "2001:db8::7"].map(|text| text.parse().unwrap()) {
            set_addresses(&mut addressed, Some(address), Some(address));
        }
        let side = [None, Some(Side::Client), Some(Side::Server)][usize::from(*missing) % 3];
        let wire_len = len as u32 + u32::from(*missing);
        editor.edit(
            octets,
            Meta { time_ns: number * 1000, wire_len, number, side },
            &mut |octets, meta| {
                assert!(octets.len() as u64 <= u64::from(meta.wire_len));
                out += 1;
            },
        );
    }
    let counts = editor.counts();
    assert_eq!((counts.packets_in, counts.packets_out), (number, out));
    assert!(counts.packets_out + counts.dropped >= counts.packets_in);
});

fn edits(choice: &[u8; 32]) -> Edits {
    let on = |bit: usize| choice[1 + bit / 8] >> (bit % 8) & 1 == 1;
    let octet = |at: usize| choice[8 + at];
    let wide = |at: usize| u32::from(octet(at)) << 4;
    let number = u64::from_le_bytes(choice[24..].try_into().unwrap());
    let map = || "10.0.0.0/8:172.16.0.0/12,[::/0]:[fd00::/16]".parse().unwrap();
    Edits {
        dedup: on(0).then_some(4),
        time_shift_ns: number as i64,
        efcs: on(1),
        unfold: on(2),
        dlt: on(3).then(|| {
            use Encapsulation::{CiscoHdlc, Ethernet, Ppp, Raw};
            [Ethernet, Raw, CiscoHdlc, Ppp][usize::from(octet(0)) % 4]
        }),
        enet_dmac: on(4).then(|| "00:11:22:33:44:55,00:11:22:33:44:66".parse().unwrap()),
        enet_mac_seed: (on(5) && !on(4)).then_some(number),
        enet_mac_seed_keep_bytes: octet(1) % 7,
        skip_l2_broadcast: on(6),
        vlan: on(7).then(|| {
            let mode = [VlanMode::Add, VlanMode::Del, VlanMode::Rewrite][usize::from(octet(2)) % 3];
            Vlan { mode, tag: Some(5), cfi: None, pri: Some(3), service: on(8) }
        }),
        mtu: on(9).then(|| wide(3).max(1)),
        mtu_trunc: on(10),
        fixlen: on(11)
            .then(|| [FixLen::Pad, FixLen::Trunc, FixLen::Del][usize::from(octet(4)) % 3]),
        truncate: on(12).then(|| u32::from(octet(5)).max(1)),
        pad: on(13).then(|| u32::from(octet(6)).max(1)),
        tos: on(14).then_some(octet(7)),
        tclass: on(15).then_some(octet(7)),
        flowlabel: on(16).then_some(number as u32 & 0xf_ffff),
        ttl: on(17).then(|| "+9".parse().unwrap()),
        portmap: on(18).then(|| "80:8080,1000-2000:7".parse().unwrap()),
        tcp_sequence: on(19).then_some(number),
        pnat: if on(20) { vec![map()] } else { vec![] },
        endpoints: (on(21) && !on(20)).then(|| "1.1.1.1:2.2.2.2".parse().unwrap()),
        seed: on(22).then_some(number),
        anonymize: (on(23) && !on(20) && !on(21) && !on(22)).then_some(Key([octet(8); 32])),
        skip_broadcast: on(24),
        fuzz_seed: on(25).then_some(number),
        fuzz_factor: Some(2),
        fixcsum: on(26),
        fragment: on(27).then(|| wide(9).max(28)),
        snaplen: on(28).then(|| u32::from(octet(10))),
        ..Edits::default()
    }
}
