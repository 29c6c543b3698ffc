use std::sync::Arc;

use squall_pcap::{PcapFormat, PcapWriter};
use squall_units::Picos;

use crate::{Chunk, Input, Reader, Replay, Survey};

/// A capture with frames of 60 octets at these times, in nanoseconds.
fn capture(times: &[u64]) -> Input {
    let mut writer = PcapWriter::new(Vec::new(), PcapFormat::default()).unwrap();
    times.iter().for_each(|time| writer.write(*time, 60, &[0; 60]).unwrap());
    let octets: Arc<[u8]> = writer.finish().unwrap().into();
    let open = move || Ok(Box::new(std::io::Cursor::new(octets.clone())) as Box<_>);
    Input { name: "capture".into(), open: Arc::new(open), once: false }
}

fn replay(times: &[u64]) -> Replay {
    Replay { inputs: vec![capture(times)], ..Replay::default() }
}

const PORTS: [u32; 1] = [1514];

#[test]
fn a_survey_reports_a_loop_and_frames_that_are_due_too_late() {
    let survey = |replay: &Replay, horizon| {
        Reader::survey(replay, PORTS.to_vec(), Picos(horizon)).unwrap().expect("it is read twice")
    };
    let of = replay(&[5, 6, 9]);
    let whole = Survey {
        ports: vec![(3, 180)],
        last: Picos(4000),
        end: Picos(4007),
        beyond: None,
        whole: true,
    };
    let delayed = Replay { loops: 9, loop_delay: Picos(7), ..of.clone() };
    assert_eq!(survey(&delayed, 4000), whole);
    assert_eq!(survey(&of, 3999).beyond, Some((3, Picos(4000))));
    assert_eq!(survey(&Replay { limit: Some(2), ..of.clone() }, 3999).beyond, None);
    let once = Replay { inputs: vec![Input { once: true, ..capture(&[1]) }], ..of };
    assert_eq!(Reader::survey(&once, PORTS.to_vec(), Picos(0)).unwrap(), None);
    // A survey does not read large captures to their end.
    let many: Vec<u64> = (0..300_000).collect();
    let part = survey(&replay(&many), 0);
    assert!(!part.whole && part.ports[0].0 < 300_000 && part.beyond.is_some(), "{part:?}");
}

#[test]
fn unsent_frames_are_counted_without_sending_the_remaining_loops() {
    let unsent = |replay: Replay, chunks: usize| {
        let mut reader = Reader::open(replay, PORTS.to_vec()).unwrap();
        let mut chunk = Chunk::default();
        (0..chunks).for_each(|_| _ = reader.fill(&mut chunk).unwrap());
        reader.unsent().unwrap()
    };
    for chunks in [0, 1, 3] {
        let loops = |loops, limit| Replay { loops, limit, ..replay(&[1, 2, 3]) };
        assert_eq!(unsent(loops(1_000_000_000_000, None), chunks), Some(vec![3_000_000_000_000]));
        assert_eq!(unsent(loops(1_000_000, Some(2_000_001)), chunks), Some(vec![2_000_001]));
        assert_eq!(unsent(loops(0, Some(1 << 60)), chunks), Some(vec![1 << 60]));
        assert_eq!(unsent(loops(0, None), chunks), None);
        assert_eq!(unsent(loops(2, None), chunks), Some(vec![6]));
    }
}
