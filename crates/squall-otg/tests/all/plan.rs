//! Plans the profiles of configurations, up to the frames that the engine makes.

use squall_otg::{Config, translate};
use squall_plan::{Assets, Inputs, Options, PortLimits, compile};
use squall_program::{Run, Scratch};
use squall_units::{Nanos, Segmentation, TxMeta};
use squall_wire::Frame;

struct NoFiles;

impl Assets for NoFiles {
    fn file(&self, path: &str) -> std::io::Result<Vec<u8>> {
        panic!("{path} is named")
    }
    fn payload(&self, path: &str) -> std::io::Result<Vec<u8>> {
        panic!("{path} is named")
    }
    fn table(&self, path: &str) -> std::io::Result<Box<dyn std::io::Read>> {
        panic!("{path} is named")
    }
    fn capture_frame(&self, path: &str, _: u64) -> Result<Vec<u8>, String> {
        panic!("{path} is named")
    }
    fn capture(&self, path: &str) -> squall_replay::Input {
        panic!("{path} is named")
    }
    fn conversations(
        &self,
        path: &str,
        _: Option<&str>,
        _: &squall_apps::ImportOptions,
    ) -> Result<squall_apps::Import, String> {
        panic!("{path} is named")
    }
    fn filter(&self, expression: &str) -> Result<squall_bpf::classic::Filter, String> {
        panic!("{expression} is named")
    }
}

/// Stream names with their first frames.
fn frames(config: &str) -> Vec<(String, Vec<Vec<u8>>)> {
    const STRIDE: usize = 2048;
    let config = Config::from_json(&serde_json::from_str(config).unwrap()).unwrap();
    let profile = translate(&config).unwrap_or_else(|problems| panic!("{problems}")).profile;
    let limits = PortLimits {
        max_frame: 1514,
        mac: None,
        speed_bps: Some(10_000_000_000),
        tx_queues: 1,
        rx_queues: 1,
        paired_queues: false,
        node: None,
        virtual_time: true,
        segmentation: Segmentation::default(),
        elsewhere: false,
    };
    let limits = vec![limits; profile.ports.len()];
    let options = Options { cpus: 1, ..Options::default() };
    let plan = compile(&profile, &limits, Inputs::of(&NoFiles), &options)
        .unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let first = |stream: &squall_plan::PlanStream| {
        let (mut cursor, mut scratch) = (stream.program.cursor(0, 1, 0), Scratch::default());
        let (mut base, mut meta) = (vec![0; STRIDE * 8], [TxMeta::default(); 8]);
        (0..8).for_each(|i| meta[i].len = stream.program.sizes().at(i as u64));
        let memory = (&mut base[..], STRIDE, &mut meta[..]);
        stream.program.fill(
            &mut cursor,
            &mut scratch,
            memory,
            &Run { start: 0, count: 8 },
            Some(Nanos(1_234_567)),
        );
        let octets = |i: usize| base[i * STRIDE..][..meta[i].len as usize].to_vec();
        (stream.name.clone(), (0..8).map(octets).collect())
    };
    plan.streams.iter().map(first).collect()
}

#[test]
fn every_checksum_and_length_is_right_in_every_frame() {
    // Headers, correct checksums in each frame, and correct lengths; the lengths in an inner frame
    // exclude its FCS.
    let expected = [
        ("udp", "eth/vlan/ipv4/udp", 2, 2),
        ("tcp6", "eth/ipv6/tcp", 1, 1),
        ("mpls", "eth/mpls/mpls/ipv4/udp", 2, 2),
        ("vxlan", "eth/ipv6/udp/vxlan/eth/ipv4/tcp", 3, 2),
        ("gre", "eth/ipv4/gre/ipv4/icmp", 3, 2),
        ("icmp6", "eth/ipv6/icmpv6", 1, 1),
        ("arp", "eth/arp", 0, 0),
        ("gtp", "eth/ipv4/udp/gtpu/ipv4/udp", 4, 5),
        ("igmp", "eth/ipv4/igmp", 2, 1),
        // The UDP checksum of this stream is wrong on purpose.
        ("options", "eth/ipv4/udp", 1, 2),
    ];
    let streams = frames(include_str!("../configs/headers.json"));
    for (name, headers, checksums, lengths) in expected {
        let (_, frames) = streams.iter().find(|(stream, _)| stream == name).unwrap();
        for octets in frames {
            let frame = Frame::dissect(octets.clone());
            assert_eq!(
                (frame.names().as_str(), frame.checksums.len(), frame.lengths.len()),
                (headers, checksums, lengths),
                "{name}"
            );
        }
    }
}
