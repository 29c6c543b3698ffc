//! Request bodies with a minimum rate. Without it, a client that sends an octet per second would
//! hold memory indefinitely.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// Time limit for the first piece, and between any two pieces.
const GRACE: Duration = Duration::from_secs(10);
/// Minimum rate in octets per second.
const MIN_RATE: u64 = 10_000;

/// A body that fails when it arrives too slowly.
pub struct SlowBody<B> {
    body: B,
    started: Instant,
    octets: u64,
    deadline: Pin<Box<Sleep>>,
}

impl<B> SlowBody<B> {
    pub fn new(body: B) -> Self {
        Self {
            body,
            started: Instant::now(),
            octets: 0,
            deadline: Box::pin(tokio::time::sleep(GRACE)),
        }
    }
}

impl<B: Body<Data = Bytes, Error = axum::Error> + Unpin> Body for SlowBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let octets = frame
                .iter()
                .flatten()
                .filter_map(Frame::data_ref)
                .map(|data| data.len() as u64)
                .sum::<u64>();
            self.octets += octets;
            // Check the mean rate, too, because one octet every nine seconds would satisfy the gap
            // limit.
            let due =
                self.started + GRACE * 2 + Duration::from_millis(self.octets * 1000 / MIN_RATE);
            let next = (Instant::now() + GRACE).min(due);
            self.deadline.as_mut().reset(next);
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Some(Err("the body arrives too slowly".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
