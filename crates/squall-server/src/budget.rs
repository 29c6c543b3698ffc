//! Limits on requests, checked before a request is parsed, so that no request takes time and memory
//! from others.

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use http_body::Body;
use squall::Profile;

use crate::{Refusal, service::Service};

/// Maximum size of a request with a profile, in octets: twice the size of 65,536 short streams.
/// Limited, because parsing it takes a second or two, and twenty times the memory.
pub const PROFILE: usize = 8 << 20;
/// Maximum number of profiles to check, convert or plan at once. Few, because each may take twenty
/// times [`PROFILE`].
pub const PLANNING: usize = 2;
/// Maximum number of streams of a profile. Receivers cannot distinguish more, because a signature
/// has 16 bits for the stream's number.
const STREAMS: usize = 1 << 16;
/// Maximum number of ports of a profile: more than any machine has. The number is limited because
/// the cost per port grows with the number of streams.
const PORTS: usize = 1 << 10;

/// Adds this limit to routes whose bodies are profiles.
pub fn of_profiles(routes: Router<Arc<Service>>) -> Router<Arc<Service>> {
    routes.layer(DefaultBodyLimit::max(PROFILE)).layer(middleware::from_fn(declared))
}

/// Refuses a body by its declared length, before any of it is read.
async fn declared(request: Request, next: Next) -> Response {
    if request.body().size_hint().lower() > PROFILE as u64 {
        return too_long().into_response();
    }
    next.run(request).await
}

/// The refusal of a body that is too long.
pub fn too_long() -> Refusal {
    let message = "the body is too long for this request\n  expected at most 8 MiB of a profile, 4 \
                   KiB of a login, 64 MiB of others";
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

/// Refuses a profile that exceeds a limit.
///
/// # Errors
/// The limit that the profile exceeds.
pub fn check(profile: &Profile) -> Result<(), Refusal> {
    let [streams, ports] = [profile.streams.len(), profile.ports.len()];
    for (what, count, most, hint) in [
        ("streams", streams, STREAMS, "one stream whose fields change ([[stream.vary]]), or flows"),
        ("ports", ports, PORTS, "several runs"),
    ] {
        if count > most {
            let message =
                format!("the profile has {count} {what}, expected at most {most}\n  try {hint}");
            return Err(Refusal::bad_request("too_large", message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_with_too_much_is_refused_with_its_count_and_the_limit() {
        let of = |ports: usize| {
            let ports: String = (0..ports).map(|n| format!("p{n} = \"null:\"\n")).collect();
            let stream = "[[stream]]\nport = \"p0\"\npacket = \"eth\"\nrate = 1\n";
            let text = format!("[ports]\n{ports}{stream}");
            Profile::parse(&text, "test", squall::Format::Toml).expect("a profile")
        };
        assert!(check(&of(PORTS)).is_ok());
        let refusal = check(&of(PORTS + 1)).expect_err("one too many");
        assert!(refusal.message.contains("1025 ports, expected at most 1024"), "{refusal}");
    }
}
