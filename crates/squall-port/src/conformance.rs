//! The guarantees of every port, as checks that panic with the guarantee that is broken. Each
//! backend's tests run them.

use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

use squall_bpf::classic;
use squall_units::{SplitMix64, be32};

use crate::{
    BATCH, ETHERNET, Filter, Nanos, Port, RxQueue, SendError, Tags, Timestamps, TxBatch, TxOutcome,
    TxQueue, monotonic,
};

/// Time limit for states that an idle machine reaches at once.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Opens links of the kind under test.
pub struct Bench<'a> {
    pub open: &'a mut dyn FnMut() -> io::Result<Ends>,
    /// Whether frames can be received only after the sender has finished, as with files.
    pub stored: bool,
}

/// The sending end of a new link, and its receiving end; `None` if frames go nowhere.
pub type Ends = (Box<dyn Port>, Option<Box<dyn Port>>);

/// Checks all guarantees.
///
/// # Panics
/// On the first broken one.
pub fn check(mut bench: Bench<'_>) {
    frames_arrive_whole_and_in_order(&mut bench);
    a_full_queue_takes_fewer_and_drops_none(&mut bench);
    slots_keep_their_content_and_marks(&mut bench);
    only_the_frame_that_is_too_long_is_refused(&mut bench);
    impossible_requests_are_refused_when_opening(&mut bench);
    lending_keeps_its_bounds(&mut bench);
    only_frames_that_match_a_filter_arrive(&mut bench);
    a_port_does_not_receive_frames_that_it_sent(&mut bench);
}

fn frames_arrive_whole_and_in_order(bench: &mut Bench<'_>) {
    let mut link = Link::open(bench, u32::MAX);
    let lengths: Vec<usize> = edge_lengths(link.max_frame).collect();
    let mut random = SplitMix64(1);
    let mut length = lengths.iter().cycle();
    for round in 0..200 {
        let want = 1 + random.draw() as usize % BATCH;
        link.wait_for_room(want);
        let mut batch = link.tx.lend(want);
        let n = batch.len();
        let first = link.sent.next;
        let dues: Vec<_> = (0..n).map(|i| Nanos(1_000 * round + 10 * i as u64)).collect();
        let taken_lengths: Vec<_> = length.by_ref().take(n).copied().collect();
        for i in 0..n {
            write(&mut batch, i, first + i as u32, taken_lengths[i], dues[i], link.max_frame);
        }
        // Sends the lent frames in one call, in two, or only some of them: the rest is then
        // discarded, and must not arrive.
        let part = random.draw() as usize % (n + 1);
        let (one, two) = match round % 3 {
            0 => (n, 0),
            1 => (part, n - part),
            _ => (part, 0),
        };
        let before = monotonic();
        let taken = link.send(one) + link.send(two);
        link.sent.expect(first, &taken_lengths[..taken], &dues, before);
        link.drain();
    }
    link.finish();
    assert!(link.received > 1000 || !link.has_receiver, "frames arrive: {} did", link.received);
}

fn a_full_queue_takes_fewer_and_drops_none(bench: &mut Bench<'_>) {
    let mut link = Link::open(bench, 60);
    let (mut calls_that_took_none, mut drained) = (0, 0);
    while link.sent.next < 20_000 && calls_that_took_none < 3 {
        // A port that takes this many frames never becomes full; in that case, the receiver's ring
        // must not overflow.
        if link.sent.next >= drained + 6000 {
            drained = link.sent.next;
            link.drain();
        }
        let mut batch = link.tx.lend(BATCH);
        let (n, first) = (batch.len(), link.sent.next);
        for i in 0..n {
            write(&mut batch, i, first + i as u32, 60, Nanos(u64::from(first)), link.max_frame);
        }
        let before = monotonic();
        let taken = link.tx.send(n).expect("a full queue is no error");
        assert!(taken <= n, "no more is taken than was offered");
        if taken == 0 {
            link.sent.read_fates(&mut *link.tx);
        }
        link.sent.expect(first, &vec![60; taken], &vec![Nanos(u64::from(first)); taken], before);
        calls_that_took_none += u32::from(taken == 0);
    }
    assert!(link.sent.next > 0, "an empty queue takes frames");
    link.finish();
}

fn slots_keep_their_content_and_marks(bench: &mut Bench<'_>) {
    let mut link = Link::open(bench, 200);
    let mut used_again = 0;
    let mut random = SplitMix64(2);
    for _ in 0..400 {
        let want = 1 + random.draw() as usize % BATCH;
        link.wait_for_room(want);
        let mut batch = link.tx.lend(want);
        let (n, first) = (batch.len(), link.sent.next);
        for i in 0..n {
            let meta = batch.meta[i];
            if meta.owner == 0 {
                assert_eq!(meta.mark, 0, "a fresh slot has neither owner nor mark");
            } else {
                let len = meta.mark as usize;
                let content = &batch.base[i * batch.stride..][..len];
                assert!(
                    content == frame(meta.owner - 1, len, link.max_frame),
                    "the content stays with its marks"
                );
                used_again += 1;
            }
            let len = 60 + (first as usize + i) % 100;
            write(&mut batch, i, first + i as u32, len, Nanos::ZERO, link.max_frame);
            (batch.meta[i].owner, batch.meta[i].mark) = (first + i as u32 + 1, len as u32);
        }
        let before = monotonic();
        let taken = link.send(n);
        let lengths: Vec<_> = (0..taken).map(|i| 60 + (first as usize + i) % 100).collect();
        link.sent.expect(first, &lengths, &vec![Nanos::ZERO; taken], before);
        // Frames that the port did not take have also left their owner and mark in the slots, so
        // their numbers are not reused.
        link.sent.next = first + n as u32;
        link.drain();
    }
    link.finish();
    assert!(used_again > 0, "slots are used again");
}

fn only_the_frame_that_is_too_long_is_refused(bench: &mut Bench<'_>) {
    let mut link = Link::open(bench, u32::MAX);
    let too_long = link.max_frame + 1;
    if !link.has_receiver {
        return;
    }
    let mut batch = link.tx.lend(3);
    assert_eq!(batch.len(), 3, "a fresh queue has room for three frames");
    if batch.stride < too_long {
        return;
    }
    for (i, seq, len) in [(0, 0, 60), (1, 9, too_long), (2, 1, 60)] {
        write(&mut batch, i, seq, len, Nanos(5), link.max_frame);
    }
    let before = monotonic();
    assert_eq!(
        link.tx.send(3).expect("the first frame is good"),
        1,
        "those before the bad frame are taken"
    );
    let refused = link.tx.send(2);
    assert!(
        matches!(refused, Err(SendError::Frame("too_long"))),
        "a frame too long is told as such: {refused:?}"
    );
    assert_eq!(
        link.tx.send(1).expect("the third frame is good"),
        1,
        "the next call goes on behind the bad frame"
    );
    link.sent.expect(0, &[60, 60], &[Nanos(5); 2], before);
    link.finish();
}

fn impossible_requests_are_refused_when_opening(bench: &mut Bench<'_>) {
    let (mut a, b) = (bench.open)().expect("the link opens");
    let facts = a.facts().clone();
    assert!(
        a.open_tx(facts.tx_queues, 60).is_err(),
        "there are as many transmit queues as the facts say"
    );
    assert!(a.open_tx(0, facts.max_slot() + 1).is_err(), "no slot is longer than the facts say");
    if let Some(mut b) = b {
        assert!(
            b.open_rx(b.facts().rx_queues).is_err(),
            "there are as many receive queues as the facts say"
        );
    }
    assert!((1..=BATCH).contains(&facts.batch), "a batch is of 1 to {BATCH} frames");
}

fn lending_keeps_its_bounds(bench: &mut Bench<'_>) {
    let mut link = Link::open(bench, 1000);
    for want in [0, 1, 2, 63, 64, 65, 100_000] {
        let batch = link.tx.lend(want);
        assert!(batch.len() <= want.min(BATCH), "no more is lent than wanted, nor than a batch");
        assert_eq!(batch.base.len(), batch.stride * batch.len(), "slots lie beside each other");
        assert!(batch.stride >= 1000 || batch.is_empty(), "the frame asked for fits a slot");
    }
    link.tx.lend(5);
    assert_eq!(link.tx.send(0).expect("none to send is no error"), 0);
    link.finish();
}

/// Applies both to ports that filter and to ports that leave filtering to the caller.
fn only_frames_that_match_a_filter_arrive(bench: &mut Bench<'_>) {
    const SNAPLEN: u32 = 50;
    const TAKEN: u32 = 200;
    let (mut a, b) = (bench.open)().expect("the link opens");
    let Some(mut b) = b else { return };
    let ethernet = b.facts().link_type == ETHERNET;
    assert!(ethernet, "what is sent as Ethernet arrives as such");
    // ether[0:4] = PREFIX and ether[11] & 1 = 0: even numbers. These octets come before any tag.
    let [first, second, third] = MAC_PREFIX.map(u32::from);
    let program = vec![
        instruction(0x20, 0, 0, 0),
        instruction(0x54, 0, 0, 0xffff_ff00),
        instruction(0x15, 0, 3, first << 24 | second << 16 | third << 8),
        instruction(0x30, 0, 0, 11),
        instruction(0x45, 1, 0, 1),
        instruction(0x06, 0, 0, SNAPLEN),
        instruction(0x06, 0, 0, 0),
    ];
    let filter = Filter {
        expression: "ether[0:4] & 0xffffff00 = 0x02535100 and ether[11] & 1 = 0".into(),
        snaplen: SNAPLEN,
        program: classic::Filter::new(program).expect("a program"),
        tags: Tags::Aside,
    };
    let mut filters = !bench.stored && b.set_filter(&filter).expect("the filter is one");
    let mut rx = (!bench.stored).then(|| b.open_rx(0).expect("queue 0 opens to receive"));
    let max_frame = a.facts().max_frame as usize;
    let mut tx = a.open_tx(0, 200).expect("queue 0 opens to send");
    let (mut expected, mut given) = ((0..2 * TAKEN).step_by(2), 0);
    let mut drain = |rx: &mut dyn RxQueue, filters: bool| {
        let batch = rx.receive().expect("receiving works");
        given += batch.frames.len() as u64;
        for (octets, frame) in batch.iter() {
            // The port has filtered, so only matching frames arrive.
            let kept = if filters { frame.len } else { filter.keep(octets, frame.wire_len) };
            if kept == 0 {
                continue;
            }
            let seq = expected.next().expect("no frame arrives that the filter does not take");
            let whole = self::frame(seq, 60 + seq as usize % 100, max_frame);
            assert_eq!(
                (kept, frame.wire_len),
                (SNAPLEN, whole.len() as u32),
                "so much as the filter says, of a whole frame"
            );
            assert!(octets[..kept as usize] == whole[..kept as usize], "all are taken, in order");
        }
        expected.len()
    };
    let mut next = 0;
    while next < 2 * TAKEN {
        let mut batch = tx.lend((2 * TAKEN - next) as usize);
        let n = batch.len();
        for i in 0..n {
            let seq = next + i as u32;
            write(&mut batch, i, seq, 60 + seq as usize % 100, Nanos(u64::from(seq)), max_frame);
        }
        let deadline = Instant::now() + TIME_LIMIT;
        let mut taken = 0;
        while taken < n {
            assert!(Instant::now() < deadline, "good frames are sent");
            taken += tx.send(n - taken).expect("good frames are sent");
            if let Some(rx) = &mut rx {
                drain(&mut **rx, filters);
            }
        }
        tx.outcomes().expect("the port is there");
        next += n as u32;
        if let Some(rx) = &mut rx {
            drain(&mut **rx, filters);
        }
    }
    tx.finish().expect("the end is reached");
    if bench.stored {
        drop((tx, a));
        b = (bench.open)().expect("the link opens again").1.expect("a file is read back");
        filters = b.set_filter(&filter).expect("the filter is one");
        rx = Some(b.open_rx(0).expect("queue 0 opens to receive"));
    }
    let mut rx = rx.expect("open");
    let deadline = Instant::now() + TIME_LIMIT;
    while drain(&mut *rx, filters) > 0 && Instant::now() < deadline {}
    // No further frame may arrive.
    let until = Instant::now() + Duration::from_millis(20);
    while Instant::now() < until {
        drain(&mut *rx, filters);
    }
    assert_eq!(expected.len(), 0, "all that the filter takes arrive");
    rx.stop().expect("a queue can be stopped");
    let drops: u64 = rx.drops().iter().map(|(_, n)| n).sum();
    if let Some(received) = rx.received() {
        assert_eq!(received, given + drops, "what came as far as the queue is given or dropped");
    }
}

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> classic::Instruction {
    classic::Instruction { code, jt, jf, k }
}

fn a_port_does_not_receive_frames_that_it_sent(bench: &mut Bench<'_>) {
    let mut link = Link::open(bench, 60);
    if link.open.is_some() || link.rx.is_none() || link.ports.0.facts().rx_queues == 0 {
        return;
    }
    let Ok(mut sender_rx) = link.ports.0.open_rx(0) else { return };
    let mut batch = link.tx.lend(10);
    for i in 0..batch.len() {
        write(&mut batch, i, i as u32, 60, Nanos(i as u64), link.max_frame);
    }
    let (n, before) = (batch.len(), monotonic());
    let taken = link.send(n);
    link.sent.expect(0, &vec![60; taken], &vec![Nanos::ZERO; taken], before);
    link.timestamps = Timestamps::None;
    link.finish();
    let batch = sender_rx.receive().expect("receiving works");
    let own = batch.iter().filter(|(octets, _)| octets.get(..3) == Some(&MAC_PREFIX)).count();
    assert_eq!(own, 0, "a port does not receive what it has sent");
}

/// An open link, and the frames that must arrive on it.
struct Link<'a> {
    tx: Box<dyn TxQueue>,
    rx: Option<Box<dyn RxQueue>>,
    ports: Ends,
    /// Opens the link again to read it, for files.
    open: Option<&'a mut dyn FnMut() -> io::Result<Ends>>,
    timestamps: Timestamps,
    max_frame: usize,
    has_receiver: bool,
    sent: Sent,
    received: u64,
    last_time: Nanos,
    tx_packets_before: u64,
}

struct Sent {
    /// Number of the next frame.
    next: u32,
    octets: u64,
    taken: u64,
    /// How many of the taken frames have left, according to later reports of the port.
    left: u64,
    /// When the last frame left, according to these reports.
    left_at: Nanos,
    outstanding: VecDeque<Expected>,
}

struct Expected {
    seq: u32,
    len: usize,
    due: Nanos,
    before: Nanos,
}

impl Sent {
    fn expect(&mut self, first: u32, lengths: &[usize], dues: &[Nanos], before: Nanos) {
        for (i, &len) in lengths.iter().enumerate() {
            let seq = first + i as u32;
            self.outstanding.push_back(Expected { seq, len, due: dues[i], before });
            self.octets += len as u64;
            self.taken += 1;
        }
        self.next = first + lengths.len() as u32;
    }

    /// Reads the port's reports. Returns whether there were any.
    fn read_fates(&mut self, tx: &mut dyn TxQueue) -> bool {
        let outcomes = tx.outcomes().expect("the port is there");
        for fate in outcomes {
            let TxOutcome::Left(at) = *fate else { panic!("good frames leave: {fate:?}") };
            assert!(
                at >= self.left_at && at <= monotonic(),
                "frames leave one after the other: {at:?}"
            );
            (self.left, self.left_at) = (self.left + 1, at);
        }
        assert!(self.left <= self.taken, "what was taken is told once");
        !outcomes.is_empty()
    }
}

impl<'a> Link<'a> {
    fn open(bench: &'a mut Bench<'_>, max_frame: u32) -> Self {
        let mut ports = (bench.open)().expect("the link opens");
        let facts = ports.0.facts().clone();
        let tx = ports.0.open_tx(0, max_frame.min(facts.max_frame)).expect("queue 0 opens to send");
        let has_receiver = ports.1.is_some();
        let live = ports.1.as_mut().filter(|_| !bench.stored);
        let rx = live.map(|port| port.open_rx(0).expect("queue 0 opens to receive"));
        Self {
            tx,
            rx,
            timestamps: ports.1.as_ref().map_or(Timestamps::None, |port| port.facts().timestamps),
            tx_packets_before: ports.0.interface_counters().map_or(0, |c| c.tx_packets),
            ports,
            open: if bench.stored { Some(&mut *bench.open) } else { None },
            max_frame: facts.max_frame as usize,
            has_receiver,
            sent: Sent {
                next: 0,
                octets: 0,
                taken: 0,
                left: 0,
                left_at: Nanos::ZERO,
                outstanding: VecDeque::new(),
            },
            received: 0,
            last_time: Nanos::ZERO,
        }
    }

    /// Sends the next `n` lent frames, with retries while the queue is full.
    fn send(&mut self, n: usize) -> usize {
        let mut taken = 0;
        let deadline = Instant::now() + TIME_LIMIT;
        while taken < n && Instant::now() < deadline {
            taken += self.tx.send(n - taken).expect("good frames are sent");
        }
        taken
    }

    /// Waits until slots can be lent again: a port that sends frames later may need time for that.
    fn wait_for_room(&mut self, want: usize) {
        let deadline = Instant::now() + TIME_LIMIT;
        while self.is_ahead() && self.tx.lend(want).is_empty() && Instant::now() < deadline {
            self.drain();
        }
    }

    /// Whether frames are taken ahead of their time.
    fn is_ahead(&self) -> bool {
        self.ports.0.facts().ahead > Nanos::ZERO
    }

    /// Receives and compares all frames that have arrived; reads the port's reports first.
    fn drain(&mut self) {
        while self.sent.read_fates(&mut *self.tx) {}
        let Some(rx) = &mut self.rx else { return };
        loop {
            let batch = rx.receive().expect("receiving works");
            if batch.frames.is_empty() {
                return;
            }
            let now = monotonic();
            for (octets, rx_frame) in batch.iter() {
                // Other traffic on a real interface is ignored.
                if octets.len() < 14 || octets[..3] != MAC_PREFIX {
                    continue;
                }
                let seq = be32(octets, 8);
                let expected =
                    self.sent.outstanding.pop_front().expect("no frame arrives that was not taken");
                assert_eq!(
                    seq, expected.seq,
                    "frames arrive in order, none missing, none twice, none forgotten"
                );
                assert_eq!(octets.len(), expected.len, "frames arrive in their length");
                assert_eq!(
                    rx_frame.wire_len, rx_frame.len,
                    "a whole frame is as long as on the wire"
                );
                assert!(
                    octets == frame(seq, expected.len, self.max_frame),
                    "octets arrive as they were sent"
                );
                let time = rx_frame.time;
                assert!(
                    time >= self.last_time,
                    "arrival instants do not go back: {time:?} after {:?}",
                    self.last_time
                );
                self.last_time = time;
                match self.timestamps {
                    Timestamps::Virtual => {
                        assert_eq!(
                            time, expected.due,
                            "in virtual time a frame arrives when it is due"
                        );
                        // Due times of later batches may start at 0 again.
                        self.last_time = Nanos::ZERO;
                    }
                    Timestamps::Process | Timestamps::Kernel => {
                        // The kernel's timestamps are from another clock, whose offset is known
                        // only to a few microseconds.
                        let slack = Nanos(100_000);
                        assert!(
                            time + slack >= expected.before,
                            "no frame arrives before it was sent"
                        );
                        assert!(time <= now + slack, "no frame arrives after it was received");
                    }
                    Timestamps::None | Timestamps::Hardware => {}
                }
                self.received += 1;
            }
        }
    }

    /// Finishes sending, waits for the remaining frames, and compares the counters.
    fn finish(&mut self) {
        self.tx.finish().expect("the end is reached");
        while self.sent.read_fates(&mut *self.tx) {}
        assert_eq!(
            self.sent.left,
            if self.is_ahead() { self.sent.taken } else { 0 },
            "all that was taken is told of"
        );
        if let Some(open) = &mut self.open {
            let mut port = open().expect("the link opens again").1.expect("a file is read back");
            self.rx = Some(port.open_rx(0).expect("queue 0 opens to receive"));
            self.ports.1 = Some(port);
        }
        if self.has_receiver {
            let deadline = Instant::now() + TIME_LIMIT;
            while !self.sent.outstanding.is_empty() && Instant::now() < deadline {
                self.drain();
                std::thread::sleep(Duration::from_micros(200));
            }
            // No further frame may arrive.
            std::thread::sleep(Duration::from_millis(20));
            self.drain();
            let drops = self.rx.as_mut().map(|rx| rx.drops()).unwrap_or_default();
            assert!(
                self.sent.outstanding.is_empty(),
                "all arrive: {} missing, {drops:?}",
                self.sent.outstanding.len()
            );
            assert!(
                drops.iter().all(|(_, n)| *n == 0),
                "what arrives is not counted as dropped: {drops:?}"
            );
        }
        if let Some(counters) = self.ports.0.interface_counters() {
            let sent = counters.tx_packets - self.tx_packets_before;
            assert_eq!(sent, self.sent.taken, "the interface has counted what was taken");
        }
    }
}

/// 02:53:51: a locally administered address, "SQ".
const MAC_PREFIX: [u8; 3] = [0x02, b'S', b'Q'];

/// All short lengths, lengths around powers of two and usual limits, and the longest.
fn edge_lengths(max: usize) -> impl Iterator<Item = usize> {
    let around = [
        128, 256, 512, 1024, 1500, 1514, 1518, 2048, 4096, 9000, 9014, 9216, 16_384, 32_768, 65_535,
    ];
    let near = around.into_iter().flat_map(|n| n - 2..=n + 2);
    (14..=80).chain(near).chain(max - 6..=max).filter(move |len| *len <= max)
}

/// Frame number `seq` of `len` octets, at least 14, with its number in the source address; the
/// number determines all octets.
fn frame(seq: u32, len: usize, max_frame: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    let mut random = SplitMix64(u64::from(seq) + 1);
    octets.fill_with(|| random.draw() as u8);
    octets[..3].copy_from_slice(&MAC_PREFIX);
    octets[6..8].copy_from_slice(&MAC_PREFIX[..2]);
    octets[8..12].copy_from_slice(&seq.to_be_bytes());
    // An experimental EtherType, sometimes with a VLAN tag, always where only a tagged frame may be
    // as long. Frames of fewer than 20 octets have no tag, because Linux drops tagged frames
    // without an EtherType after the tag.
    let tagged = len >= 20 && (seq.is_multiple_of(5) || len + 4 > max_frame);
    octets[12..14].copy_from_slice(if tagged && seq.is_multiple_of(2) && len + 4 <= max_frame {
        &[0x88, 0xa8]
    } else if tagged {
        &[0x81, 0x00]
    } else {
        &[0x88, 0xb5]
    });
    octets
}

fn write(batch: &mut TxBatch<'_>, i: usize, seq: u32, len: usize, due: Nanos, max_frame: usize) {
    batch.frame(i, len, due).copy_from_slice(&frame(seq, len, max_frame));
}
