//! The kernel's executor, run by an interpreter: departures and counters. `fill.rs` compares the
//! octets.

use std::cell::RefCell;

use squall_bpf::{interpret::Machine, xdp_action};
use squall_program::{
    Gap, GapLaw, Pattern, Program, Sizes, Spec, Timeline,
    kernel::{Clock, Image, Memory, Stream, compile},
};
use squall_units::{Nanos, Picos};
use squall_wire::Packet;

/// The memory of a machine as words.
struct Words<'a, 'o>(RefCell<&'a mut Machine<'o>>, usize);

impl Memory for Words<'_, '_> {
    fn get(&self, word: usize) -> u64 {
        let machine = self.0.borrow();
        u64::from_ne_bytes(machine.maps[self.1][word * 8..][..8].try_into().unwrap())
    }

    fn set(&self, word: usize, value: u64) {
        self.0.borrow_mut().maps[self.1][word * 8..][..8].copy_from_slice(&value.to_ne_bytes());
    }
}

const START: u64 = 1_000_000_000;

fn machine(image: &Image) -> Machine<'_> {
    let mut machine = Machine::new(&image.object);
    machine.maps[image.memory] = image.words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    machine.maps[image.tables.0].copy_from_slice(&image.tables.1);
    machine
}

fn on<'a, 'o>(machine: &'a mut Machine<'o>, image: &Image) -> Words<'a, 'o> {
    Words(RefCell::new(machine), image.memory)
}

fn begin(machine: &mut Machine<'_>, image: &Image, clock: Clock) {
    let words = on(machine, image);
    image.layout.set_clock(&words, &clock);
    image.layout.let_go(&words);
}

const ENDLESS: Clock = Clock {
    start: Nanos(START),
    end: Picos(1 << 63),
    last: Picos((1 << 63) + 1),
    packets: u64::MAX,
    octets: u64::MAX,
    allowance: None,
};

fn program(len: u32) -> Program {
    let packet = Packet::parse("eth/ipv4/udp").unwrap();
    let frame =
        packet.build(Some(len as usize), &|_| Err(std::io::ErrorKind::NotFound.into()), 1).unwrap();
    Program::build(Spec { frame, sizes: Sizes::fixed(len), vars: vec![], signature: None }).unwrap()
}

fn stream<'a>(program: &'a Program, gap: Gap, pattern: Pattern) -> Stream<'a> {
    Stream {
        sent: 0,
        name: "s",
        program,
        gap,
        law: &GapLaw::Constant,
        pattern,
        start: Picos(0),
        share: (0, 1),
        self_start: true,
        next: None,
    }
}

/// Runs until a frame is made. Returns its length and its time on the clock.
fn next_frame(machine: &mut Machine<'_>, image: &Image) -> Option<(usize, u64)> {
    for _ in 0..100_000 {
        let mut frame = image.frame.clone();
        if machine.run_xdp(&mut frame).unwrap() == xdp_action::REDIRECT as u64 {
            return Some((frame.len(), machine.now - START));
        }
        machine.now += 1_000;
    }
    None
}

/// Runs a witness, which reports that `sent` frames left and `drops` frames were dropped.
fn witness(machine: &mut Machine<'_>, image: &Image, which: usize, arguments: &[u64]) {
    let mut other = Machine::new(&image.witnesses[which].1);
    std::mem::swap(&mut other.maps, &mut machine.maps);
    (other.now, other.cpu) = (machine.now, machine.cpu);
    other.run_tracepoint(arguments).unwrap();
    std::mem::swap(&mut other.maps, &mut machine.maps);
}

#[test]
fn departures_are_those_of_the_timeline() {
    let p = program(60);
    let bursts = Pattern { bursts: 3, packets: 4, gap: Picos(50_000_000), tight: false };
    let sevenths = Gap::from_pps(7_000_000, 9);
    for (gap, pattern, start, share) in [
        (sevenths, Pattern::CONTINUOUS, Picos(0), (0, 1)),
        (sevenths, bursts, Picos(3_000_000), (0, 1)),
        (sevenths, Pattern::CONTINUOUS, Picos(17), (1, 3)),
        (Gap::from_bps(1_000_000_000, 1, true), bursts, Picos(0), (0, 1)),
    ] {
        let s = Stream { start, share, ..stream(&p, gap, pattern) };
        let image = compile(&[s]).unwrap();
        let mut machine = machine(&image);
        begin(&mut machine, &image, ENDLESS);
        (machine.now, machine.tick) = (START - 100_000, 7);
        let whole = Timeline::new(gap.fixed(60), GapLaw::Constant, pattern, 0, start);
        let mut timeline =
            if share.1 == 1 { whole } else { whole.share(share.0, share.1).unwrap() };
        for _ in 0..200 {
            let Some(due) = timeline.due() else { break };
            let (_, left) = next_frame(&mut machine, &image).unwrap();
            assert!(left * 1000 >= due.0, "{left} ns is before {due:?}");
            assert!(left * 1000 < due.0 + 3_000_000, "{left} ns is long after {due:?}");
            timeline.advance(60);
            let words = on(&mut machine, &image);
            assert_eq!(image.layout.standing(&words, 0), timeline.standing());
        }
        if timeline.due().is_none() {
            assert_eq!(next_frame(&mut machine, &image), None);
        }
    }
}

#[test]
fn a_stream_continues_after_the_frames_of_former_runs() {
    let p = program(60);
    let bursts = Pattern { bursts: 3, packets: 4, gap: Picos(50_000_000), tight: false };
    let gap = Gap::PerFrame { num: 1_000_000, den: 1 };
    // 12 frames a round: two rounds, one burst and one frame were sent.
    let s = Stream { sent: 29, ..stream(&p, gap, bursts) };
    let image = compile(&[s]).unwrap();
    let mut machine = machine(&image);
    begin(&mut machine, &image, ENDLESS);
    (machine.now, machine.tick) = (START, 7);
    assert_eq!(image.layout.next_frame(&on(&mut machine, &image), 0), 29);
    let made = std::iter::from_fn(|| next_frame(&mut machine, &image)).count();
    let words = on(&mut machine, &image);
    assert_eq!((made, image.layout.accounts(&words, 0).generated), (7, 7));
    assert_eq!(image.layout.next_frame(&words, 0), 36);
}

#[test]
fn of_several_streams_the_one_that_is_due_first_is_next() {
    let programs: Vec<Program> = (0..5).map(|i| program(60 + i)).collect();
    let gap = |i: usize| Gap::PerFrame { num: [7, 11, 13, 17, 19][i] * 1_000_000, den: 1 };
    let streams: Vec<Stream<'_>> =
        programs.iter().enumerate().map(|(i, p)| stream(p, gap(i), Pattern::CONTINUOUS)).collect();
    let image = compile(&streams).unwrap();
    let mut machine = machine(&image);
    begin(&mut machine, &image, ENDLESS);
    (machine.now, machine.tick) = (START, 3);
    let mut due = [0u64; 5];
    for _ in 0..300 {
        let first = (0..5).min_by_key(|&i| due[i]).unwrap();
        due[first] += [7, 11, 13, 17, 19][first];
        assert_eq!(next_frame(&mut machine, &image).unwrap().0, 60 + first);
        witness(&mut machine, &image, 0, &[0, 0, 1, 0, 0]);
    }
    let words = on(&mut machine, &image);
    assert_eq!((0..5).map(|i| image.layout.accounts(&words, i).taken).sum::<u64>(), 300);
}

#[test]
fn streams_start_each_other_as_often_as_they_may() {
    let p = [program(60), program(64)];
    let pattern = Pattern { bursts: 1, packets: 2, gap: Picos(0), tight: false };
    let gap = Gap::PerFrame { num: 10_000_000, den: 1 };
    let first = Stream { next: Some((1, None)), ..stream(&p[0], gap, pattern) };
    let second = Stream {
        next: Some((0, Some(2))),
        self_start: false,
        start: Picos(5_000_000),
        ..stream(&p[1], Gap::Zero, pattern)
    };
    let image = compile(&[first, second]).unwrap();
    let mut machine = machine(&image);
    begin(&mut machine, &image, ENDLESS);
    (machine.now, machine.tick) = (START, 1);
    let made: Vec<(usize, u64)> = std::iter::from_fn(|| next_frame(&mut machine, &image))
        .map(|(len, at)| (len, at / 1000))
        .collect();
    // 20 us for the first stream, 5 us of silence, two frames of the second at once.
    let round = |at| [(60, at), (60, at + 10), (64, at + 25), (64, at + 25)];
    assert_eq!(made, [round(0), round(25), round(50)].concat());
}

#[test]
fn budgets_and_the_end_are_kept_to_the_frame() {
    let p = program(60);
    let s = stream(&p, Gap::PerFrame { num: 1_000_000, den: 1 }, Pattern::CONTINUOUS);
    for (clock, frames) in [
        (Clock { packets: 5, ..ENDLESS }, 5),
        (Clock { octets: 64 * 3 + 1, ..ENDLESS }, 4),
        // Frames are due at 0, 1, 2 and 3 us, and not at 4 us.
        (Clock { end: Picos(4_000_000), ..ENDLESS }, 4),
        (Clock { end: Picos(4_000_001), ..ENDLESS }, 5),
    ] {
        let image = compile(&[s]).unwrap();
        let mut machine = machine(&image);
        begin(&mut machine, &image, clock);
        (machine.now, machine.tick) = (START, 10);
        let made = std::iter::from_fn(|| next_frame(&mut machine, &image)).count();
        assert_eq!(made, frames, "{clock:?}");
    }
}

#[test]
fn frames_refused_by_the_driver_are_counted_by_stream() {
    let p = [program(60), program(64)];
    let streams =
        p.each_ref().map(|p| stream(p, Gap::PerFrame { num: 1_000, den: 1 }, Pattern::CONTINUOUS));
    let image = compile(&streams).unwrap();
    let mut machine = machine(&image);
    begin(&mut machine, &image, ENDLESS);
    (machine.now, machine.tick, machine.cpu) = (START + 1_000_000, 1, 3);
    // The streams take turns: 0, 1, 0, 1, ...
    for _ in 0..16 {
        next_frame(&mut machine, &image).unwrap();
    }
    let lost = -28i64 as u64;
    witness(&mut machine, &image, 0, &[0, 0, 13, 3, lost]);
    // Frames of other senders: no frame of the program's is in flight, or the CPU differs.
    witness(&mut machine, &image, 0, &[0, 0, 5, 0, 0]);
    next_frame(&mut machine, &image).unwrap();
    machine.cpu = 1;
    witness(&mut machine, &image, 0, &[0, 0, 1, 0, 0]);
    machine.cpu = 3;
    witness(&mut machine, &image, 1, &[0, 0, 0, -95i64 as u64]);
    let words = on(&mut machine, &image);
    let counts = [0, 1].map(|i| image.layout.accounts(&words, i));
    assert_eq!(counts.map(|c| c.generated), [9, 8]);
    assert_eq!(counts.map(|c| c.taken), [7, 6]);
    assert_eq!(counts.map(|c| c.octets), [7 * 64, 6 * 68]);
    // The second of the last three frames belongs to stream 0.
    assert_eq!(counts.map(|c| c.dropped), [1, 2]);
    assert_eq!(counts.map(|c| c.refused), [1, 0]);
    assert_eq!(image.layout.errors(&words), (28, 95));
}

#[test]
fn lateness_is_counted_in_the_bins_of_a_histogram() {
    let p = program(60);
    let s = stream(&p, Gap::PerFrame { num: 1_000_000_000, den: 1 }, Pattern::CONTINUOUS);
    for late in
        [0, 1, 127, 128, 129, 255, 256, 257, 1000, 65_535, 65_536, 1 << 20, (1 << 32) - 1, 1 << 33]
    {
        let image = compile(&[s]).unwrap();
        let mut machine = machine(&image);
        begin(&mut machine, &image, ENDLESS);
        machine.now = START;
        next_frame(&mut machine, &image).unwrap();
        machine.now = START + late;
        witness(&mut machine, &image, 0, &[0, 0, 1, 0, 0]);
        let words = on(&mut machine, &image);
        let (octave, clamped) =
            (((late.min(u32::MAX.into()) | 127).ilog2() - 6) as usize, late.min(u32::MAX.into()));
        let bin = octave * 128 + (clamped >> octave.saturating_sub(1)) as usize % 128;
        assert_eq!(image.layout.lateness(&words, 0).collect::<Vec<_>>(), [(bin, 1)], "{late}");
        let a = image.layout.accounts(&words, 0);
        assert_eq!((a.late_min, a.late_max, a.late_sum), (late, late, late));
    }
}

#[test]
fn a_stream_is_paused_resumed_and_changed_while_the_program_rests() {
    let p = program(60);
    let s = stream(&p, Gap::PerFrame { num: 1_000_000, den: 1 }, Pattern::CONTINUOUS);
    let image = compile(&[s]).unwrap();
    let mut machine = machine(&image);
    begin(&mut machine, &image, ENDLESS);
    (machine.now, machine.tick) = (START, 1);
    next_frame(&mut machine, &image).unwrap();
    image.layout.pause(&on(&mut machine, &image), 0, Picos(500_000));
    machine.now = START + 10_000;
    assert_eq!(next_frame(&mut machine, &image), None);
    // Due half a microsecond after the resume.
    let at = machine.now - START;
    image.layout.resume(&on(&mut machine, &image), 0, Picos(at * 1000));
    let (_, left) = next_frame(&mut machine, &image).unwrap();
    assert!((at + 500..at + 600).contains(&left), "{left} after {at}");
    image.layout.set_rate(
        &on(&mut machine, &image),
        0,
        Gap::PerFrame { num: 9_000_000, den: 1 },
        Picos(left * 1000),
    );
    let next = [(); 2].map(|()| next_frame(&mut machine, &image).unwrap().1);
    assert!((8_900..9_100).contains(&(next[1] - next[0])), "{next:?}");
    image.layout.remove(&on(&mut machine, &image), 0);
    assert_eq!(next_frame(&mut machine, &image), None);
}

#[test]
fn no_frame_waits_for_the_next_burst_to_be_handed_over() {
    let p = program(60);
    let pattern = Pattern { bursts: 2, packets: 3, gap: Picos(100_000_000), tight: false };
    let s = stream(&p, Gap::Zero, pattern);
    let image = compile(&[s]).unwrap();
    let mut machine = machine(&image);
    begin(&mut machine, &image, ENDLESS);
    (machine.now, machine.tick) = (START, 10);
    // The kernel's batch; three of its runs make frames, and the others must not take time.
    let made = (0..64).filter(|_| {
        machine.run_xdp(&mut image.frame.clone()).unwrap() == xdp_action::REDIRECT as u64
    });
    assert_eq!(made.count(), 3);
    assert!(
        machine.now < START + 2_000,
        "the burst leaves {} ns after it was made",
        machine.now - START
    );
    witness(&mut machine, &image, 0, &[0, 0, 3, 0, 0]);
    let (_, left) = next_frame(&mut machine, &image).unwrap();
    assert!((100_000..102_000).contains(&left), "{left}");
}

#[test]
fn a_hand_over_of_which_the_driver_took_nothing_is_no_departure() {
    let p = program(60);
    let image = compile(&[stream(&p, Gap::Zero, Pattern::CONTINUOUS)]).unwrap();
    let mut machine = machine(&image);
    begin(&mut machine, &image, ENDLESS);
    let mut left = Vec::new();
    for (now, sent, drops) in [(500, 0, 2), (1_000, 2, 0), (1_500, 1, 1), (2_000, 0, 2)] {
        machine.now = START + now;
        (0..2).for_each(|_| assert!(next_frame(&mut machine, &image).is_some()));
        machine.now = START + now + 9;
        witness(&mut machine, &image, 0, &[0, 0, sent, drops, 0]);
        left.push(image.layout.last_left(&on(&mut machine, &image)).0.saturating_sub(START));
    }
    assert_eq!(left, [0, 1_009, 1_509, 1_509]);
}

#[test]
fn frames_that_find_no_interface_are_counted_by_stream() {
    let p = [program(60), program(64)];
    let streams =
        p.each_ref().map(|p| stream(p, Gap::PerFrame { num: 1_000, den: 1 }, Pattern::CONTINUOUS));
    let image = compile(&streams).unwrap();
    let mut machine = machine(&image);
    begin(&mut machine, &image, ENDLESS);
    (machine.now, machine.tick) = (START + 1_000_000, 1);
    (0..2).for_each(|_| assert!(next_frame(&mut machine, &image).is_some()));
    machine.redirect = xdp_action::DROP;
    (0..3).for_each(|_| {
        assert_eq!(machine.run_xdp(&mut image.frame.clone()).unwrap(), xdp_action::DROP as u64)
    });
    witness(&mut machine, &image, 0, &[0, 0, 2, 0, 0]);
    let words = on(&mut machine, &image);
    let counts = [0, 1].map(|i| image.layout.accounts(&words, i));
    assert!(image.layout.is_gone(&words));
    assert_eq!(counts.map(|c| (c.generated, c.taken, c.refused)), [(3, 1, 2), (2, 1, 1)]);
}

#[test]
fn unfit_streams_name_the_reason_and_a_port_that_fits() {
    let p = program(60);
    let uniform = GapLaw::Uniform { spread: 0.5 };
    let s = Stream { law: &uniform, ..stream(&p, Gap::Zero, Pattern::CONTINUOUS) };
    let message = compile(&[s]).unwrap_err().to_string();
    assert!(message.contains("stream \"s\"") && message.contains("not constant"), "{message}");
    assert!(message.contains("af_packet"), "{message}");
    let long = program(3400);
    assert!(
        compile(&[stream(&long, Gap::Zero, Pattern::CONTINUOUS)])
            .unwrap_err()
            .why
            .contains("3400 octets")
    );
    let many = vec![stream(&p, Gap::Zero, Pattern::CONTINUOUS); 65];
    assert!(compile(&many).unwrap_err().why.contains("65 streams"));
    assert!(compile(&many[..64]).is_ok());
}
