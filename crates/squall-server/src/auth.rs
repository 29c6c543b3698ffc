//! Authentication: one token, made on the first start, and session cookies for browsers that have
//! sent it.

use std::{
    collections::VecDeque,
    fs,
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use squall::Error;
use squall_units::Cannot;
use squall_wire::to_hex;

use crate::{Needs, Settings, Token, connection::Peer, peers::PAGE, trex::Trex};

/// Number of sessions to keep. The oldest is dropped, so that logins cannot fill the memory.
const SESSIONS: usize = 256;

pub struct Auth {
    token: String,
    pub file: PathBuf,
    /// The token, if it was made at this start.
    pub new_token: Option<String>,
    /// Rules for HTTP and gRPC.
    pub http: AccessRules,
    /// Rules for TRex, separate because its clients cannot send a token.
    pub trex: AccessRules,
    sessions: Mutex<VecDeque<String>>,
}

/// Which clients need no token on one kind of listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRules {
    pub needs: Needs,
    /// Whether to look up the users of TCP connections. False if a proxy or tunnel may connect,
    /// because all of its clients would appear as the proxy's user.
    tcp_users: bool,
}

impl AccessRules {
    /// The user of the process at the other end of a loopback connection. Uses the canonical
    /// address, because gRPC's core, Java, Go and .NET connect to 127.0.0.1 from IPv6 sockets
    /// (`::ffff:127.0.0.1`).
    pub fn user_of(&self, stream: &tokio::net::TcpStream, peer: SocketAddr) -> Option<u32> {
        let local = stream.local_addr().ok()?;
        (self.tcp_users && peer.ip().to_canonical().is_loopback())
            .then(|| squall_port_linux::tcp_user(peer, local).ok().flatten())?
    }

    /// Whether a process of `user` (`None`: unknown) needs no token.
    pub fn admits(&self, user: Option<u32>) -> bool {
        match self.needs {
            Needs::Everybody => false,
            Needs::Others(own) => user.is_some_and(|user| user == own || user == ROOT),
            Needs::Nobody => true,
        }
    }

    /// Whether `user` is identified and admitted as such. False if everyone is admitted, because
    /// then the user proves nothing.
    pub fn knows(&self, user: Option<u32>) -> bool {
        matches!(self.needs, Needs::Others(_)) && self.admits(user)
    }
}

/// Requires the token from all users but `own` and root. In a user namespace the kernel shows all
/// unmapped users, root among them, as the overflow user, so a daemon of that user cannot identify
/// anyone.
fn except(own: u32, user_namespace: bool) -> Needs {
    match own {
        OVERFLOW_UID if user_namespace => Needs::Everybody,
        OVERFLOW_UID => Needs::Others(ROOT),
        _ => Needs::Others(own),
    }
}

/// DEFAULT_OVERFLOWUID of the kernel (linux/highuid.h).
const OVERFLOW_UID: u32 = 65_534;

/// The rules for TRex's clients. They cannot send a token, so clients that would need one are
/// refused.
///
/// # Errors
/// Settings that admit no client, or that admit everyone without `--trex-allow-anyone`.
fn of_trex(trex: &Trex, token: &Token, known: impl Fn() -> Needs) -> Result<AccessRules, Error> {
    if trex.allow_anyone {
        // Users are looked up only because the audit names them; they do not decide access.
        return Ok(AccessRules { needs: Needs::Nobody, tcp_users: true });
    }
    for (option, at) in [("--trex-sync", trex.sync), ("--trex-async", trex.asynchronous)] {
        if !at.ip().is_loopback() {
            return Err(Error::Usage(format!(
                "{option} {at}: TRex's clients cannot send a token, so anyone who can reach this \
                 address could use the ports\n  try 127.0.0.1:{port}, and ssh -L \
                 {port}:127.0.0.1:{port} on the client's machine, or --trex-allow-anyone",
                port = at.port(),
            )));
        }
    }
    let needs = match token {
        Token::None => Needs::Nobody,
        Token::Auto => known(),
        Token::Always | Token::File(_) => Needs::Everybody,
    };
    if needs == Needs::Everybody {
        return Err(Error::Usage(
            "--trex: everyone needs the token, and TRex's clients cannot send one\n  try --token \
             auto, which lets in the clients of your own user, or --trex-allow-anyone"
                .into(),
        ));
    }
    Ok(AccessRules { needs, tcp_users: true })
}

impl Auth {
    /// Reads the token, or makes one if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or written, is readable by others, or holds no token.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let file = match &settings.token {
            Token::File(file) => file.clone(),
            Token::Auto | Token::Always | Token::None => settings.data.join("token"),
        };
        let remote = |address: &SocketAddr| !address.ip().is_loopback();
        let remote = std::iter::once(&settings.listen).chain(&settings.grpc).any(remote);
        if remote && settings.token == Token::None {
            return Err(Error::Usage(format!(
                "without a token, anyone who can reach {} can send traffic\n  try --token auto, or \
                 --listen 127.0.0.1:8443",
                settings.listen
            )));
        }
        let known = || {
            let own = squall_port_linux::Permissions::of_this_process();
            except(own.uid, own.user_namespace)
        };
        let needs = match settings.token {
            Token::None => Needs::Nobody,
            // With --plain, TLS is usually left to a proxy, and the kernel would report the proxy's
            // user for all of its clients.
            Token::Auto if !settings.plain => known(),
            Token::Auto | Token::Always | Token::File(_) => Needs::Everybody,
        };
        // Users are not looked up off loopback, because such a listener is also reached through
        // tunnels and port forwarding, whose local end belongs to another user than the client.
        let tcp_users = !remote && matches!(needs, Needs::Others(_));
        let http = AccessRules { needs, tcp_users };
        let trex = match &settings.trex {
            Some(trex) => of_trex(trex, &settings.token, known)?,
            None => AccessRules { needs: Needs::Everybody, tcp_users: false },
        };
        let (token, new_token) = match fs::read_to_string(&file) {
            Ok(text) => (check(text.trim(), &file)?.to_owned(), None),
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && !matches!(settings.token, Token::File(_)) =>
            {
                let token = random();
                write_secret(&file, format!("{token}\n").as_bytes())
                    .map_err(|e| unusable(&file, &e))?;
                (token.clone(), Some(token))
            }
            Err(error) => return Err(unusable(&file, &error)),
        };
        Ok(Self { token, file, new_token, http, trex, sessions: Mutex::default() })
    }

    /// Whether `text` is the token. The comparison takes constant time for texts of the token's
    /// length, otherwise its duration would reveal the token octet by octet.
    pub fn is_token(&self, text: &str) -> bool {
        text.as_bytes().ct_eq(self.token.as_bytes()).into()
    }

    /// Whether the request is authorized: it has the token or a session cookie, or needs neither.
    pub fn allows(&self, headers: &HeaderMap, peer: &Peer) -> bool {
        !self.needs_token(headers, peer)
            || self.is_bearer(headers)
            || self.session(headers).is_some()
    }

    /// Whether the request needs the token.
    pub fn needs_token(&self, headers: &HeaderMap, peer: &Peer) -> bool {
        // The user of a proxy's process proves nothing, because a proxy acts for another client.
        let forwarded = FORWARDED.iter().any(|name| headers.contains_key(*name));
        // The user of such a request proves nothing, because pages of other daemons run in any
        // browser.
        if headers.contains_key(PAGE) {
            return true;
        }
        match self.http.needs {
            Needs::Others(_) => forwarded || !self.http.admits(peer.user),
            _ => !self.http.admits(peer.user),
        }
    }

    /// The kind of credentials that the request carries.
    pub fn credentials(&self, headers: &HeaderMap) -> &'static str {
        match () {
            () if self.is_bearer(headers) => "token",
            () if self.session(headers).is_some() => "web page",
            () => "anybody",
        }
    }

    fn is_bearer(&self, headers: &HeaderMap) -> bool {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        // The token is a subprotocol, because browsers let pages set no other header of a
        // WebSocket.
        let protocols = text(header::SEC_WEBSOCKET_PROTOCOL).unwrap_or_default().split(',');
        let mut shown = protocols.filter_map(|one| one.trim().strip_prefix(TOKEN_PROTOCOL));
        if shown.any(|token| self.is_token(token)) {
            return true;
        }
        let given = text(header::AUTHORIZATION);
        let scheme =
            |text: &str| text.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
        given.filter(|text| scheme(text)).is_some_and(|text| self.is_token(text[7..].trim()))
    }

    /// The session cookie of the request, if it is valid.
    fn session(&self, headers: &HeaderMap) -> Option<String> {
        if headers.contains_key(PAGE) {
            return None;
        }
        let cookies =
            headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut values = cookies
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().strip_prefix(COOKIE));
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |value: &&str| {
            sessions.iter().fold(subtle::Choice::from(0), |any, one| {
                any | one.as_bytes().ct_eq(value.as_bytes())
            })
        };
        values.find(|value| bool::from(known(value))).map(str::to_owned)
    }

    /// Opens a session. Returns the `Set-Cookie` value.
    pub fn login(&self, secure: bool) -> String {
        let value = random();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.truncate(SESSIONS - 1);
        sessions.push_front(value.clone());
        let secure = if secure { "; Secure" } else { "" };
        // SameSite=Strict, so that pages of other sites cannot use the session; HttpOnly prevents
        // scripts from reading the cookie.
        format!("{COOKIE}{value}; HttpOnly; SameSite=Strict; Path=/; Max-Age=2592000{secure}")
    }

    /// Closes the session. Returns a `Set-Cookie` value that clears the cookie.
    pub fn logout(&self, headers: &HeaderMap) -> String {
        if let Some(value) = self.session(headers) {
            self.sessions
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|one| *one != value);
        }
        format!("{COOKIE}; HttpOnly; SameSite=Strict; Path=/; Max-Age=0")
    }
}

const COOKIE: &str = "squall=";

/// Subprotocol of a WebSocket that carries the token: `squall.token.TOKEN`, offered together with
/// [`crate::watch::PROTOCOL`].
const TOKEN_PROTOCOL: &str = "squall.token.";

/// The user ID of root, which needs no token, because root can read the token's file anyway.
const ROOT: u32 = 0;

/// Headers that proxies add: RFC 7239, its predecessors, and Via of RFC 9110 section 7.6.3.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];

/// Returns 256 random bits from the operating system, in hexadecimal.
pub fn random() -> String {
    let mut octets = [0; 32];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut octets)
        .expect("the system gives random octets");
    to_hex(&octets)
}

/// Writes a file that only its owner can read, as [`write_whole`] does.
pub fn write_secret(path: &Path, data: &[u8]) -> io::Result<()> {
    write_whole(path, data, 0o600)
}

/// Writes a file completely under another name and then renames it, so that a crash leaves either
/// the old file or the new one.
pub fn write_whole(path: &Path, data: &[u8], mode: u32) -> io::Result<()> {
    let new = path.with_extension("new");
    _ = fs::remove_file(&new);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(data)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

fn check<'a>(token: &'a str, file: &Path) -> Result<&'a str, Error> {
    let mode = fs::metadata(file).map_err(|e| unusable(file, &e))?.permissions().mode();
    if mode & 0o077 != 0 {
        let why = format!(
            "other users can read it (mode {:03o})\n  try chmod 600 {}",
            mode & 0o777,
            file.display()
        );
        return Err(Error::Environment(format!(
            "cannot use the token in {}: {why}",
            file.display()
        )));
    }
    if token.len() < 16 || !token.bytes().all(|octet| octet.is_ascii_graphic()) {
        let why = "expected one line of at least 16 letters, digits and punctuation marks";
        return Err(Error::Environment(format!(
            "cannot use the token in {}: {why}\n  try to remove it; the daemon makes a new one",
            file.display()
        )));
    }
    Ok(token)
}

fn unusable(file: &Path, error: &io::Error) -> Error {
    let what = format!("use the token in {}", file.display());
    Error::Environment(Cannot::of_io(what, error).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_number_is_not_known_by_it() {
        assert_eq!(except(1000, true), Needs::Others(1000));
        assert_eq!(except(OVERFLOW_UID, true), Needs::Everybody);
        assert_eq!(except(OVERFLOW_UID, false), Needs::Others(ROOT), "nobody, for example");
    }

    #[test]
    fn trex_clients_are_let_in_as_users_of_this_machine_or_not_at_all() {
        let trex = |sync: &str, allow_anyone| Trex {
            ports: Vec::new(),
            flows: None,
            headers: false,
            sync: sync.parse().expect("an address"),
            asynchronous: ([127, 0, 0, 1], 4500).into(),
            allow_anyone,
        };
        let door = |sync: &str, anyone: bool, token: &Token| {
            of_trex(&trex(sync, anyone), token, || Needs::Others(1000)).map_err(|e| e.to_string())
        };
        let own = door("127.0.0.1:4501", false, &Token::Auto).expect("it may");
        let users = [Some(1000), Some(ROOT), Some(1002), None].map(|user| own.admits(user));
        assert_eq!(users, [true, true, false, false]);
        for (sync, token) in [
            ("0.0.0.0:4501", Token::Auto),
            ("[::]:4501", Token::None),
            ("127.0.0.1:4501", Token::Always),
            ("127.0.0.1:4501", Token::File("token".into())),
        ] {
            let why =
                door(sync, false, &token).expect_err("the settings do not open it to everybody");
            assert!(why.contains("--trex-allow-anyone"), "{why}");
            assert!(door(sync, true, &token).expect("now they do").admits(None));
        }
    }
}
