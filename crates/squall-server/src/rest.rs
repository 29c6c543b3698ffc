//! What is left of a request's body when its reply is there.
//!
//! A reply over HTTP/2 that comes before the body was read is followed by a reset of the stream,
//! and clients take that for an error in place of the reply: what they send is read before they
//! hear of it, as long as it is not much.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::{sync::oneshot, time::timeout};

/// Octets that are read of a refused request. They cost nothing but their transfer.
pub const OF_REFUSED: u64 = 8 << 20;
/// Octets that are read of a request that was let in.
pub const OF_ADMITTED: u64 = 64 << 20;
/// One that waits for its reply before it ends its body gets it then.
const PATIENCE: Duration = Duration::from_secs(2);

/// A body that comes back when whoever reads it lets it go before its end.
pub struct Lent<B> {
    body: Option<B>,
    back: Option<oneshot::Sender<B>>,
}

/// Where it comes back to.
pub struct Rest<B>(oneshot::Receiver<B>);

pub fn lend<B>(body: B) -> (Lent<B>, Rest<B>) {
    let (back, rest) = oneshot::channel();
    (Lent { body: Some(body), back: Some(back) }, Rest(rest))
}

impl<B: Body<Data = Bytes> + Unpin> Rest<B> {
    /// As [`read`], of what is left.
    pub async fn read(mut self, most: u64) -> Option<B> {
        match self.0.try_recv() {
            Ok(body) => read(body, most).await,
            Err(_) => None,
        }
    }
}

/// Reads up to `most` octets, and discards them. A body that has more comes back, for
/// [`after_reply`].
pub async fn read<B: Body<Data = Bytes> + Unpin>(mut body: B, most: u64) -> Option<B> {
    if body.size_hint().lower() > most {
        return Some(body);
    }
    let all = async {
        let mut octets = 0;
        while let Some(frame) = body.frame().await {
            // One that has gone away has nothing more to say.
            let Ok(frame) = frame else { return true };
            octets += frame.data_ref().map_or(0, |data| data.len() as u64);
            if octets > most {
                return false;
            }
        }
        true
    };
    let all = timeout(PATIENCE, all).await.unwrap_or(false);
    (!all).then_some(body)
}

/// A reply that is followed by the reset of its stream, as a `rest` of the request was not read.
/// That stays until the reply has left: h2 then resets with NO_ERROR (RFC 9113 section 8.1), after
/// which clients keep the reply; a body that is dropped before is reset with CANCEL, and clients
/// report an error in place of the reply.
pub struct Followed<R, B> {
    reply: R,
    _rest: B,
}

pub fn after_reply<R, B>(reply: R, rest: B) -> Followed<R, B> {
    Followed { reply, _rest: rest }
}

impl<R: Body + Unpin, B: Unpin> Body for Followed<R, B> {
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<R::Data>, R::Error>>> {
        Pin::new(&mut self.reply).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.size_hint()
    }
}

impl<B> Drop for Lent<B> {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take()) {
            // Nobody waits for it where the connection has ended.
            _ = back.send(body);
        }
    }
}

impl<B: Body<Data = Bytes, Error = BoxError> + Unpin> Body for Lent<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
