//! The web page: Vite's output for `ui/`, embedded in the binary. It is independent of runs,
//! because the page uses the API.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{LazyLock, Mutex},
};

use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use flate2::Compression;
use rust_embed::{Embed, EmbeddedFile};
use squall_wire::to_hex;

use crate::{
    Origin,
    coding::{gzipped, takes_gzip},
    peers,
    runs::lock,
};

/// A debug build reads the directory at run time if it existed at build time.
#[derive(Embed)]
#[folder = "../../ui/dist"]
#[allow_missing = true]
struct Page;

/// Permits only the daemon's own files, no inline scripts or styles, and connections only to the
/// daemon and its peers, so that the name of a run or capture cannot become code.
fn policy(peers: &[Origin]) -> HeaderValue {
    let text = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         connect-src 'self'{}; font-src 'self'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'",
        peers::sources(peers)
    );
    HeaderValue::from_str(&text).expect("origins have no other letters than headers may have")
}

/// Minimum size of a file to compress, in octets.
const MIN_COMPRESSED: usize = 1 << 10;

/// Compressed files by entity tag. Kept, because every browser requests them and they never change.
static GZIPPED: LazyLock<Mutex<HashMap<String, Bytes>>> = LazyLock::new(Mutex::default);
/// Maximum number of entries of [`GZIPPED`], because a debug build reads files that change.
const MAX_GZIPPED: usize = 256;

const UNBUILT: &str = include_str!("gui/unbuilt.html");

/// Routes of the page, which needs no token, because it has no secrets and asks for the token
/// itself.
pub fn router<S: Clone + Send + Sync + 'static>(peers: &[Origin]) -> Router<S> {
    let policy = policy(peers);
    let at = |path: &'static str| {
        let policy = policy.clone();
        get(move |headers: HeaderMap| async move { file(path, &headers, &policy) })
    };
    let (first, assets) = (policy.clone(), policy.clone());
    Router::new()
        .route("/", get(move |headers: HeaderMap| async move { index(&headers, &first) }))
        .route("/squall.svg", at("squall.svg"))
        .route(
            "/assets/{name}",
            get(move |Path(name): Path<String>, headers: HeaderMap| async move {
                file(&format!("assets/{name}"), &headers, &assets)
            }),
        )
}

fn index(headers: &HeaderMap, policy: &HeaderValue) -> Response {
    match Page::get("index.html") {
        Some(found) => answer("index.html", found, headers, policy),
        None => {
            let html = (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
            // The page has only an inline style and no script.
            let policy = (
                header::CONTENT_SECURITY_POLICY,
                HeaderValue::from_static(
                    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
                ),
            );
            ([html, policy, (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], UNBUILT)
                .into_response()
        }
    }
}

fn file(path: &str, headers: &HeaderMap, policy: &HeaderValue) -> Response {
    match Page::get(path) {
        Some(found) => answer(path, found, headers, policy),
        None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    }
}

fn answer(path: &str, found: EmbeddedFile, asked: &HeaderMap, policy: &HeaderValue) -> Response {
    let hash = to_hex(&found.metadata.sha256_hash()[..12]);
    let media = media_type(path);
    // Only text is compressed, because files of the other type are images and fonts, which are
    // compressed already.
    let gzip = found.data.len() >= MIN_COMPRESSED
        && media != "application/octet-stream"
        && takes_gzip(asked);
    // The compressed file is another representation, so it needs its own tag (RFC 9110 section
    // 8.8.3.3).
    let tag = if gzip { format!("\"{hash}-gzip\"") } else { format!("\"{hash}\"") };
    // Names under assets/ contain a hash of the contents, so they can be cached forever. The index
    // cannot, otherwise an upgraded daemon would serve an old page.
    let cache = if path.starts_with("assets/") {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let mut headers: Vec<(HeaderName, HeaderValue)> = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static(media)),
        // Caches must not serve a compressed reply to a client that cannot decode it (RFC 9110
        // section 12.5.5).
        (header::VARY, HeaderValue::from_static("accept-encoding")),
        (header::CACHE_CONTROL, HeaderValue::from_static(cache)),
        (header::CONTENT_SECURITY_POLICY, policy.clone()),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        // For browsers without support for frame-ancestors, which supersedes this header.
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    ];
    headers.extend(HeaderValue::from_str(&tag).ok().map(|tag| (header::ETAG, tag)));
    if gzip {
        headers.push((header::CONTENT_ENCODING, HeaderValue::from_static("gzip")));
    }
    let same = asked
        .get(header::IF_NONE_MATCH)
        .and_then(|old| old.to_str().ok())
        .is_some_and(|old| old.contains(&tag));
    let mut response = if same {
        StatusCode::NOT_MODIFIED.into_response()
    } else if gzip {
        // Use the best level, because each file is compressed only once per process.
        let mut known = lock(&GZIPPED);
        if known.len() >= MAX_GZIPPED {
            known.clear();
        }
        let packed = || Bytes::from(gzipped(&found.data, Compression::best()));
        known.entry(hash).or_insert_with(packed).clone().into_response()
    } else {
        match found.data {
            Cow::Borrowed(octets) => octets.into_response(),
            Cow::Owned(octets) => octets.into_response(),
        }
    };
    for (name, value) in headers {
        response.headers_mut().insert(name, value);
    }
    response
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_or_how_to_build_it_is_there_with_a_policy_that_lets_nothing_else_in() {
        let response = index(&HeaderMap::new(), &policy(&[]));
        assert_eq!(response.status(), StatusCode::OK);
        assert!(
            response.headers()[header::CONTENT_TYPE]
                .to_str()
                .expect("text")
                .starts_with("text/html")
        );
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
    }

    #[test]
    fn an_unchanged_file_is_not_sent_again() {
        let found = || EmbeddedFile { data: Cow::Borrowed(b"abc"), metadata: meta() };
        let first = answer("assets/a.js", found(), &HeaderMap::new(), &policy(&[]));
        assert!(
            first.headers()[header::CACHE_CONTROL].to_str().expect("text").contains("immutable")
        );
        let mut asked = HeaderMap::new();
        asked.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(
            answer("assets/a.js", found(), &asked, &policy(&[])).status(),
            StatusCode::NOT_MODIFIED
        );
        assert_eq!(
            answer("index.html", found(), &asked, &policy(&[])).headers()[header::CACHE_CONTROL],
            "no-cache"
        );
    }

    #[test]
    fn files_are_compressed_for_who_takes_that_and_known_by_another_tag() {
        let text = "function f() { return 7; }\n".repeat(1000);
        let found =
            || EmbeddedFile { data: Cow::Owned(text.clone().into_bytes()), metadata: meta() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let octets = |response: Response| {
            runtime
                .block_on(axum::body::to_bytes(response.into_body(), usize::MAX))
                .expect("a body")
        };
        let plain = answer("assets/a.js", found(), &HeaderMap::new(), &policy(&[]));
        let takes = |tag: Option<&HeaderValue>| {
            let mut asked = HeaderMap::new();
            asked.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate, br"));
            tag.map(|tag| asked.insert(header::IF_NONE_MATCH, tag.clone()));
            answer("assets/a.js", found(), &asked, &policy(&[]))
        };
        let packed = takes(None);
        assert_eq!(
            (&packed.headers()[header::CONTENT_ENCODING], &packed.headers()[header::VARY]),
            (&HeaderValue::from_static("gzip"), &HeaderValue::from_static("accept-encoding"))
        );
        let tag = packed.headers()[header::ETAG].clone();
        assert_ne!(tag, plain.headers()[header::ETAG]);
        assert_eq!(takes(Some(&tag)).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(
            takes(Some(&plain.headers()[header::ETAG])).status(),
            StatusCode::OK,
            "it has the other one"
        );
        let packed = octets(packed);
        assert!(packed.len() < text.len() / 10);
        let mut unpacked = String::new();
        std::io::Read::read_to_string(
            &mut flate2::read::GzDecoder::new(&packed[..]),
            &mut unpacked,
        )
        .expect("gzip");
        assert!(unpacked == text && octets(plain) == text.as_bytes());
    }

    #[test]
    fn nothing_outside_of_the_page_is_found() {
        for path in ["assets/../../../Cargo.toml", "../Cargo.toml", "assets/none.js"] {
            assert_eq!(
                file(path, &HeaderMap::new(), &policy(&[])).status(),
                StatusCode::NOT_FOUND,
                "{path}"
            );
        }
    }

    fn meta() -> rust_embed::Metadata {
        rust_embed::Metadata::__rust_embed_new([7; 32], None, None)
    }
}
