//! Software segmentation (GSO) for ports that cannot do it: segments large frames as the kernel or
//! a NIC would, and sends the segments one by one.

use std::io;

use squall_port::{BATCH, Lent, SendError, Slots, TxBatch, TxQueue};
use squall_units::{Cut, FCS_LEN, Nanos};
use squall_wire::Segments;

/// Slots for GSO frames: few, because each is up to 64 KiB long and becomes many frames.
const SLOTS: usize = 16;

pub(crate) struct Cutter {
    inner: Box<dyn TxQueue>,
    slots: Slots,
    lent: Lent,
    /// Number of segments sent of the next frame or, after an error, of the dropped frame.
    left: usize,
    /// The frame before the next one was dropped after some of its segments had left.
    dropped: bool,
    /// An error of the next frame, kept until the frames before it are reported as sent, because
    /// `send` returns either a count or an error.
    failure: Option<SendError>,
}

impl Cutter {
    /// `max_frame`: longest frame before segmentation, in octets without FCS.
    pub fn new(inner: Box<dyn TxQueue>, max_frame: u32) -> Self {
        let slots = Slots::new(SLOTS, max_frame as usize);
        Self { inner, slots, lent: Lent::default(), left: 0, dropped: false, failure: None }
    }

    /// Sends the segments of the next frame while the port has room. Returns whether all of them
    /// left. If the port refuses a segment, the later ones are dropped too, so that the count of
    /// segments alone says which ones left.
    fn forward(&mut self) -> Result<bool, SendError> {
        let (octets, meta) = self.slots.frame(self.lent.range(1).start);
        let segments = segments(octets, meta.cut);
        let count = segments.map_or(1, |s| s.count());
        while self.left < count {
            let mut batch = self.inner.lend((count - self.left).min(BATCH));
            let n = batch.len();
            for i in 0..n {
                match segments {
                    Some(s) => {
                        let k = self.left + i;
                        s.write(k, batch.frame(i, s.len_of(k), meta.due));
                    }
                    None => batch.frame(i, octets.len(), meta.due).copy_from_slice(octets),
                }
            }
            let taken = if n == 0 { 0 } else { self.inner.send(n)? };
            self.left += taken;
            if taken < n || n == 0 {
                return Ok(self.left == count);
            }
        }
        Ok(true)
    }
}

impl TxQueue for Cutter {
    fn lend(&mut self, want: usize) -> TxBatch<'_> {
        (self.left, self.dropped, self.failure) = (0, false, None);
        let n = want.min(SLOTS);
        self.lent.lend(0, n);
        self.slots.batch(0, n)
    }

    fn reads_due(&self) -> bool {
        self.inner.reads_due()
    }

    fn launches_after(&self) -> Nanos {
        self.inner.launches_after()
    }

    fn send(&mut self, n: usize) -> Result<usize, SendError> {
        // Asserts that at least `n` slots are lent.
        self.lent.range(n);
        if std::mem::take(&mut self.dropped) {
            self.left = 0;
        }
        for taken in 0..n {
            match self.failure.take().map_or_else(|| self.forward(), Err) {
                Ok(true) => {
                    self.lent.pass(1);
                    self.left = 0;
                }
                Ok(false) => return Ok(taken),
                Err(error) if taken > 0 => {
                    self.failure = Some(error);
                    return Ok(taken);
                }
                Err(error) => {
                    self.lent.pass(1);
                    self.dropped = true;
                    return Err(error);
                }
            }
        }
        Ok(n)
    }

    fn partly(&self) -> u32 {
        self.left as u32
    }

    fn finish(&mut self) -> io::Result<()> {
        self.inner.finish()
    }
}

/// The segments of `octets`; `None`: the frame needs no segmentation.
fn segments(octets: &[u8], cut: Cut) -> Option<Segments<'_>> {
    (!cut.is_whole())
        .then(|| Segments::new(octets, cut.size.into(), cut.transport.into(), cut.payload.into()))
}

/// The number of segments of the next frame that have left although the whole frame has not, and
/// their octets with FCS. After an error, those of the dropped frame.
pub(crate) fn partly_sent(queue: &dyn TxQueue, cut: Cut) -> (u64, u64) {
    let left = u64::from(queue.partly());
    let each = u64::from(cut.payload) + u64::from(cut.size) + u64::from(FCS_LEN);
    (left, left * each)
}

#[cfg(test)]
mod tests {

    use super::*;

    /// A queue with injected errors, by frame number: it is full before the frame or refuses it
    /// (each once), or loses its link.
    #[derive(Default)]
    struct Fake {
        full: Option<usize>,
        bad: Option<usize>,
        gone: Option<usize>,
        sent: usize,
        slots: Option<Slots>,
    }

    impl TxQueue for Fake {
        fn lend(&mut self, want: usize) -> TxBatch<'_> {
            self.slots.get_or_insert_with(|| Slots::new(4, HEADERS + SEGMENT)).batch(0, want.min(4))
        }

        fn send(&mut self, n: usize) -> Result<usize, SendError> {
            for taken in 0..n {
                let now = Some(self.sent);
                if now == self.full {
                    self.full = None;
                    return Ok(taken);
                }
                if taken > 0 && (now == self.bad || now == self.gone) {
                    return Ok(taken);
                }
                if now == self.bad {
                    self.bad = None;
                    return Err(SendError::Frame("bad"));
                }
                if now == self.gone {
                    return Err(SendError::Port(io::Error::other("gone")));
                }
                self.sent += 1;
            }
            Ok(n)
        }
    }

    const HEADERS: usize = 54;
    const SEGMENT: usize = 100;
    /// The test lends two GSO frames of seven segments each.
    const LEN: usize = HEADERS + 6 * SEGMENT + 40;

    const CUT: Cut = Cut { transport: 34, payload: HEADERS as u8, size: SEGMENT as u16 };

    fn cutter(inner: Fake) -> Cutter {
        let mut cutter = Cutter::new(Box::new(inner), LEN as u32);
        let mut batch = cutter.lend(2);
        for i in 0..2 {
            let frame = batch.frame(i, LEN, Nanos::ZERO);
            frame.fill(0);
            frame[12..15].copy_from_slice(&[8, 0, 0x45]);
            (frame[23], frame[46]) = (6, 0x50);
            batch.meta[i].cut = CUT;
        }
        cutter
    }

    /// Sends up to `n` GSO frames and retries while the queue is full. Returns the number taken,
    /// and the error that ended it.
    fn send(cutter: &mut Cutter, n: usize) -> (usize, Option<SendError>) {
        let mut taken = 0;
        while taken < n {
            match cutter.send(n - taken) {
                Ok(more) => taken += more,
                Err(error) => return (taken, Some(error)),
            }
        }
        (taken, None)
    }

    #[test]
    fn a_queue_that_was_full_in_the_midst_goes_on_there() {
        let mut cutter = cutter(Fake { full: Some(3), ..Fake::default() });
        assert!(matches!(cutter.send(2), Ok(0)));
        assert_eq!(cutter.partly(), 3);
        assert!(matches!(cutter.send(2), Ok(2)));
        assert_eq!(cutter.partly(), 0);
    }

    #[test]
    fn segments_that_left_are_reported_when_one_is_refused() {
        let mut cutter = cutter(Fake { bad: Some(9), ..Fake::default() });
        assert!(matches!(send(&mut cutter, 2), (1, Some(SendError::Frame("bad")))));
        assert_eq!(cutter.partly(), 2);
        assert_eq!(partly_sent(&cutter, CUT), (2, 2 * (HEADERS + SEGMENT + 4) as u64));
        assert!(matches!(cutter.send(0), Ok(0)));
        assert_eq!(cutter.partly(), 0, "the next has not begun");
    }

    #[test]
    fn the_gso_frame_after_a_dropped_one_is_whole() {
        let mut cutter = cutter(Fake { bad: Some(2), ..Fake::default() });
        assert!(matches!(send(&mut cutter, 2), (0, Some(SendError::Frame("bad")))));
        assert_eq!(cutter.partly(), 2);
        assert!(matches!(send(&mut cutter, 1), (1, None)));
        assert_eq!(cutter.partly(), 0);
    }

    #[test]
    fn segments_that_left_before_the_port_was_lost_are_reported() {
        let mut cutter = cutter(Fake { gone: Some(5), ..Fake::default() });
        assert!(matches!(send(&mut cutter, 2), (0, Some(SendError::Port(_)))));
        assert_eq!(cutter.partly(), 5);
    }
}
