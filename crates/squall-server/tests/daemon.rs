//! Tests of the daemon as its clients see it: started in this process, on free TCP ports of
//! loopback, with traffic ports in memory.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use squall_server::{Bound, Controller, Needs, Settings, Token, Trex, serve_until};
use tokio::sync::oneshot;
use tungstenite::{Message, WebSocket};

/// Time limit for state changes that are immediate on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const PROFILE: &str = "[ports]\nA = \"loop:NAME\"\nB = \"loop:NAME\"\n[[stream]]\nname = \
                       \"web\"\nport = \"A\"\npacket = \"eth/ipv4/udp\"\nrate = \"1 \
                       kpps\"\nlatency = true\n";

struct Daemon {
    bound: Bound,
    data: PathBuf,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

fn folder_of(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("squall-daemon-{name}-{}", std::process::id()))
}

/// A path where nothing exists yet.
fn folder(name: &str) -> PathBuf {
    let data = folder_of(name);
    _ = fs::remove_dir_all(&data);
    data
}

fn settings(data: &Path) -> Settings {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Settings {
        listen: any,
        grpc: Some(any),
        grpc_plain: false,
        plain: true,
        data: data.to_owned(),
        token: Token::None,
        lease: Duration::from_secs(30),
        allow: Vec::new(),
        certificate: None,
        names: Vec::new(),
        peers: Vec::new(),
        user: None,
        trex: None,
        inventories: Vec::new(),
        controller: Controller::default(),
    }
}

impl Daemon {
    fn of(name: &str) -> Self {
        Self::start(settings(&folder(name)))
    }

    fn start(settings: Settings) -> Self {
        let data = settings.data.clone();
        let ((end, ended), (tell, received)) = (oneshot::channel(), mpsc::channel());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let serving = serve_until(
                settings,
                move |bound| tell.send(bound.clone()).expect("the test waits"),
                async { _ = ended.await },
            );
            runtime.expect("a runtime").block_on(serving).expect("it serves");
        });
        let bound = received.recv_timeout(TIMEOUT).expect("it is ready");
        Self { bound, data, end: Some(end), thread: Some(thread) }
    }

    fn stop(&mut self) {
        if let Some(end) = self.end.take() {
            _ = end.send(());
            self.thread.take().expect("once").join().expect("it ends well");
        }
    }

    /// Sends a request with `headers`. Returns status, headers and body.
    fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> (u16, Vec<(String, String)>, Vec<u8>) {
        let mut stream = TcpStream::connect(self.bound.https).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        talk(&mut stream, self.bound.https, method, path, headers, body)
    }

    fn json(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let octets = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let (status, _, reply) =
            self.ask(method, path, &[("content-type", "application/json")], &octets);
        (status, serde_json::from_slice(&reply).unwrap_or(Value::Null))
    }

    fn get(&self, path: &str) -> Value {
        let (status, reply) = self.json("GET", path, Value::Null);
        assert_eq!(status, 200, "{path}: {reply}");
        reply
    }

    /// Starts a run. Returns its id.
    fn run(&self, link: &str, more: Value) -> String {
        let mut body = json!({ "profile": PROFILE.replace("NAME", link) });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, reply) = self.json("POST", "/squall/v1/runs", body);
        assert_eq!(status, 201, "{reply}");
        reply["run"]["id"].as_str().expect("a name").to_owned()
    }

    fn until(&self, path: &str, what: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let found = self.get(path);
            if what(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "{path}: {found}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn watch(&self, query: &str) -> WebSocket<TcpStream> {
        let stream = TcpStream::connect(self.bound.https).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        let url = format!("ws://{}/squall/v1/watch?{query}", self.bound.https);
        tungstenite::client(url, stream).expect("a WebSocket").0
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
            _ = fs::remove_dir_all(&self.data);
        }
    }
}

fn talk(
    stream: &mut (impl Read + Write),
    host: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += &format!("host: {host}\r\n");
    }
    headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
    if !body.is_empty() {
        head += &format!("content-length: {}\r\n", body.len());
    }
    stream.write_all((head + "\r\n").as_bytes()).expect("it takes the request");
    // A server that refuses early stops reading, so writing may fail.
    _ = stream.write_all(body);
    let mut reply = Vec::new();
    _ = stream.read_to_end(&mut reply);
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole header");
    let head = String::from_utf8_lossy(&reply[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().expect("a status");
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(a, b)| (a.to_lowercase(), b.to_owned()))
        .collect::<Vec<_>>();
    let mut body = reply[end + 4..].to_vec();
    if header(&headers, "transfer-encoding") == Some("chunked") {
        body = unchunked(&body);
    }
    (status, headers, body)
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).expect("hex"), 16)
            .expect("hex");
        whole.extend(&rest[line + 2..line + 2 + length]);
        rest = &rest[line + 2 + length + 2..];
    }
    whole
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn code(reply: &[u8]) -> String {
    let reply: Value = serde_json::from_slice(reply).expect("JSON");
    reply["error"]["code"].as_str().expect("a code").to_owned()
}

#[test]
fn without_the_token_a_client_gets_only_the_daemon_s_description() {
    let daemon = Daemon::start(Settings { token: Token::Always, ..settings(&folder("token")) });
    let token = daemon.bound.new_token.clone().expect("it was made now");
    let mode = fs::metadata(&daemon.bound.token_file).expect("the file").permissions().mode();
    assert_eq!((mode & 0o777, token.len()), (0o600, 64));
    let info = daemon.get("/squall/v1/info");
    assert_eq!((&info["token_required"], &info["authorized"]), (&json!(true), &json!(false)));
    let bearer = |token: &str| format!("Bearer {token}");
    for path in [
        "/squall/v1/ports",
        "/squall/v1/runs",
        "/metrics",
        "/config",
        "/otg/alice/config",
        "/squall/v1/nowhere",
    ] {
        assert_eq!(daemon.ask("GET", path, &[], b"").0, 401, "{path}");
        let wrong = bearer(&"0".repeat(64));
        assert_eq!(daemon.ask("GET", path, &[("authorization", &wrong)], b"").0, 401, "{path}");
    }
    assert_eq!(
        daemon.ask("GET", "/squall/v1/runs", &[("authorization", &bearer(&token))], b"").0,
        200
    );
    let json = ("content-type", "application/json");
    let body = |token: &str| json!({ "token": token }).to_string();
    assert_eq!(daemon.ask("POST", "/squall/v1/login", &[json], body("x").as_bytes()).0, 401);
    let (status, headers, _) =
        daemon.ask("POST", "/squall/v1/login", &[json], body(&token).as_bytes());
    assert_eq!(status, 204);
    let cookie = header(&headers, "set-cookie").expect("a cookie");
    assert!(
        cookie.contains("HttpOnly")
            && cookie.contains("SameSite=Strict")
            && !cookie.contains(&token),
        "{cookie}"
    );
    let cookie = ("cookie", cookie.split(';').next().unwrap());
    assert_eq!(daemon.ask("GET", "/squall/v1/runs", &[cookie], b"").0, 200);
    assert_eq!(daemon.ask("POST", "/squall/v1/logout", &[cookie], b"").0, 204);
    assert_eq!(daemon.ask("GET", "/squall/v1/runs", &[cookie], b"").0, 401);
}

/// Returns the HTTP status that curl gets when run as `user` (`None`: the current user); 0 if there
/// is no reply. Returns `None` if curl cannot run as that user.
fn curl(user: Option<u32>, arguments: &[&str]) -> Option<u16> {
    let mut command = Command::new("curl");
    command
        .args(["-sk", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}"])
        .args(arguments)
        .current_dir("/");
    // Also drop the groups, otherwise the process could open files of this user.
    user.into_iter().for_each(|user| _ = command.uid(user).gid(user));
    match command.output() {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).parse().expect("a status")),
        Err(error) => {
            println!("SKIPPED: curl as user {user:?}: {error}");
            None
        }
    }
}

#[test]
fn another_user_of_this_machine_needs_the_token() {
    let daemon =
        Daemon::start(Settings { plain: false, token: Token::Auto, ..settings(&folder("users")) });
    let (page, grpc) =
        (format!("https://{}", daemon.bound.https), daemon.bound.grpc.expect("it listens"));
    let runs = format!("{page}/squall/v1/runs");
    let grpc = format!("http://{grpc}/otg.Openapi/GetVersion");
    let grpc = [&grpc, "-X", "POST", "--http2-prior-knowledge"];
    let json = ["-H", "content-type: application/json", "-d", r#"{"ports": ["loop:x"]}"#];
    let lease = format!("{page}/squall/v1/leases");
    let Some(own) = curl(None, &[&runs]) else { return };
    assert_eq!(
        (own, curl(None, &[&[lease.as_str()][..], &json].concat())),
        (200, Some(201)),
        "the daemon's own user"
    );
    // gRPC sends its status in a header, so the HTTP status is 200 in any case.
    assert_eq!(curl(None, &grpc), Some(200), "the daemon's own user");
    // A proxy acts for other clients, so the user of its process does not count.
    for header in ["x-forwarded-for: 192.0.2.1", "via: 1.1 proxy", "forwarded: for=192.0.2.1"] {
        assert_eq!(curl(None, &[&runs, "-H", header]), Some(401), "{header}");
    }
    let Some(other) = curl(Some(4242), &[&runs]) else { return };
    assert_eq!(other, 401);
    assert_eq!(curl(Some(4242), &[&[lease.as_str()][..], &json].concat()), Some(401));
    assert_eq!(curl(Some(4242), &grpc), Some(401));
    let bearer = format!(
        "authorization: Bearer {}",
        daemon.bound.new_token.as_ref().expect("it was made now")
    );
    assert_eq!(curl(Some(4242), &[&runs, "-H", &bearer]), Some(200), "who has the token");
}

#[test]
fn a_unix_socket_knows_its_user_and_carries_everything() {
    let mut daemon =
        Daemon::start(Settings { plain: false, token: Token::Auto, ..settings(&folder("unix")) });
    let socket = daemon.bound.socket.clone().expect("a socket");
    let ask = |path: &str, headers: &[(&str, &str)]| {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        talk(&mut stream, daemon.bound.https, "GET", path, headers, b"").0
    };
    for path in ["/squall/v1/runs", "/config", "/metrics", "/"] {
        assert_eq!(ask(path, &[]), 200, "{path}");
    }
    assert_eq!(ask("/otg.Openapi/GetVersion", &[]), 405, "gRPC posts");
    assert_eq!(ask("/squall/v1/runs", &[("x-forwarded-for", "192.0.2.1")]), 401);
    assert_eq!(fs::metadata(&daemon.data).expect("a folder").permissions().mode() & 0o777, 0o700);
    daemon.stop();
    assert!(!socket.exists(), "it goes with the daemon");
    // A socket file that a killed daemon left must not prevent the start.
    drop(UnixListener::bind(&socket).expect("bound"));
    let again = Daemon::start(Settings { token: Token::Always, ..settings(&daemon.data) });
    let mut stream =
        UnixStream::connect(again.bound.socket.as_ref().expect("a socket")).expect("it listens");
    assert_eq!(
        talk(&mut stream, again.bound.https, "GET", "/squall/v1/runs", &[], b"").0,
        401,
        "always is always"
    );
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let daemon = Daemon::start(Settings { token: Token::Always, ..settings(&folder("silent")) });
    let bearer = format!("Bearer {}", daemon.bound.new_token.as_ref().expect("it was made now"));
    let mut known = TcpStream::connect(daemon.bound.https).expect("it listens");
    known.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let ask = |stream: &mut TcpStream| {
        let head = format!(
            "GET /squall/v1/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: {bearer}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it is taken");
        let mut octets = [0; 12];
        stream.read_exact(&mut octets).expect("an answer");
        String::from_utf8_lossy(&octets).into_owned()
    };
    assert_eq!(ask(&mut known), "HTTP/1.1 200");
    // Each round opens more connections than there are slots for strangers. A third of them send a
    // few octets and no complete request.
    for round in 0..3 {
        let silent: Vec<_> = (0..700)
            .map_while(|number| {
                let mut stream = TcpStream::connect(daemon.bound.https).ok()?;
                (number % 3 == 0).then(|| stream.write_all(b"GET /"));
                Some(stream)
            })
            .collect();
        assert!(silent.len() > 300, "round {round}: {} connections", silent.len());
        assert_eq!(
            daemon.ask("GET", "/squall/v1/runs", &[("authorization", &bearer)], b"").0,
            200,
            "round {round}"
        );
    }
    let mut rest = [0; 1 << 16];
    known.set_nonblocking(true).expect("a socket");
    while known.read(&mut rest).is_ok_and(|read| read > 0) {}
    known.set_nonblocking(false).expect("a socket");
    assert_eq!(ask(&mut known), "HTTP/1.1 200", "who was known stays");
}

#[test]
fn through_a_proxy_all_clients_need_the_token() {
    let daemon = Daemon::start(Settings { token: Token::Auto, ..settings(&folder("proxy")) });
    assert_eq!(daemon.bound.needs, Needs::Everybody);
    assert_eq!(daemon.ask("GET", "/squall/v1/runs", &[], b"").0, 401);
    let info = daemon.get("/squall/v1/info");
    assert_eq!((&info["token_required"], &info["authorized"]), (&json!(true), &json!(false)));
}

#[test]
fn grpc_off_loopback_has_tls_unless_it_is_disabled() {
    let anywhere = Some(SocketAddr::from(([0, 0, 0, 0], 0)));
    let of =
        |name: &str| Settings { grpc: anywhere, token: Token::Auto, ..settings(&folder(name)) };
    let daemon = Daemon::start(Settings { plain: false, ..of("grpc-tls") });
    assert!(daemon.bound.grpc_tls);
    let url = |scheme: &str, daemon: &Daemon| {
        format!(
            "{scheme}://127.0.0.1:{}/otg.Openapi/GetVersion",
            daemon.bound.grpc.expect("it listens").port()
        )
    };
    let Some(plainly) = curl(None, &["-X", "POST", &url("http", &daemon)]) else { return };
    assert_eq!(plainly, 0, "nothing is said without TLS");
    assert_eq!(curl(None, &["-X", "POST", &url("https", &daemon)]), Some(401));
    let daemon = Daemon::start(Settings { grpc_plain: true, ..of("grpc-plain") });
    assert!(!daemon.bound.grpc_tls);
    assert_eq!(curl(None, &["-X", "POST", &url("http", &daemon)]), Some(401));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let refused = runtime
        .block_on(serve_until(of("grpc-no"), |_| (), async {}))
        .expect_err("no TLS, and nobody said so");
    assert!(
        refused.exit_status() == 2 && refused.to_string().contains("--grpc-plain"),
        "{refused}"
    );
}

#[test]
fn an_interface_is_used_only_when_it_is_named() {
    let lease = |daemon: &Daemon| {
        let (status, reply) =
            daemon.json("POST", "/squall/v1/leases", json!({ "ports": ["af_packet:lo"] }));
        (status, reply["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    let shown = |daemon: &Daemon| {
        daemon.get("/squall/v1/ports")["ports"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|port| port["interface"] == "lo")
    };
    let daemon = Daemon::of("withheld");
    assert_eq!((lease(&daemon), shown(&daemon)), ((403, "port_not_allowed".into()), false));
    assert!(
        daemon.bound.withheld.iter().any(|(name, _)| name == "lo"),
        "{:?}",
        daemon.bound.withheld
    );
    let profile = PROFILE.replace("loop:NAME", "af_packet:lo").replace("B = ", "# ");
    let (status, reply) = daemon.json("POST", "/squall/v1/runs", json!({ "profile": profile }));
    assert_eq!((status, &reply["error"]["code"]), (403, &json!("port_not_allowed")), "{reply}");
    let daemon = Daemon::start(Settings { allow: vec!["lo".into()], ..settings(&folder("named")) });
    assert_eq!((lease(&daemon), shown(&daemon)), ((201, String::new()), true));
}

#[test]
fn long_replies_are_compressed_for_who_takes_that() {
    let daemon = Daemon::of("gzip");
    let ports: Vec<Value> =
        (0..2000).map(|n| json!({"name": format!("p{n}"), "location": "null:"})).collect();
    let (set, json_type) =
        (json!({ "ports": ports }).to_string(), ("content-type", "application/json"));
    let (status, headers, _) =
        daemon.ask("POST", "/config", &[json_type, ("accept-encoding", "gzip")], set.as_bytes());
    assert_eq!(
        (status, header(&headers, "content-encoding")),
        (200, None),
        "a short one goes as it is"
    );
    let config = |takes: &[(&str, &str)]| {
        let (status, headers, octets) = daemon.ask("GET", "/config", takes, b"");
        assert_eq!(
            (status, header(&headers, "content-type")),
            (200, Some("application/json")),
            "{takes:?}"
        );
        (header(&headers, "content-encoding").map(str::to_owned), octets)
    };
    let (coding, plain) = config(&[]);
    assert_eq!(coding, None);
    assert_eq!(
        serde_json::from_slice::<Value>(&plain).expect("JSON")["ports"].as_array().unwrap().len(),
        2000
    );
    for takes in ["gzip", "deflate, GZIP;q=0.5", "br;q=1, gzip; q=1.0"] {
        let (coding, octets) = config(&[("accept-encoding", takes)]);
        assert_eq!(coding.as_deref(), Some("gzip"), "{takes}");
        assert!(octets.len() < plain.len() / 4, "{takes}: {} of {}", octets.len(), plain.len());
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(&octets[..]).read_to_end(&mut text).expect("gzip");
        assert!(text == plain, "{takes}: another text");
    }
    for takes in ["identity", "gzip;q=0", "br, deflate", "*", "gzip;q=x", ""] {
        assert_eq!(config(&[("accept-encoding", takes)]), (None, plain.clone()), "{takes}");
    }
}

#[test]
fn pages_of_other_origins_and_rebound_names_are_refused() {
    let daemon = Daemon::of("guard");
    let host = daemon.bound.https.to_string();
    let own = format!("http://{host}");
    for (headers, expected) in [
        (vec![("origin", own.as_str())], 200),
        (vec![("origin", "http://evil.example")], 403),
        (vec![("origin", "null")], 403),
        (vec![("origin", "http://127.0.0.1:1")], 403),
        (vec![("host", "evil.example")], 403),
        (vec![("host", "localhost:1")], 200),
        (vec![("host", "[::1]:8443")], 200),
        (vec![("sec-fetch-site", "cross-site")], 403),
    ] {
        assert_eq!(daemon.ask("GET", "/squall/v1/runs", &headers, b"").0, expected, "{headers:?}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        let (status, _, reply) =
            daemon.ask("POST", "/squall/v1/leases", &[("content-type", kind)], b"{}");
        assert_eq!((status, code(&reply)), (415, "content_type".into()), "{kind}");
    }
    let (status, _, reply) = daemon.ask(
        "POST",
        "/squall/v1/leases",
        &[("content-type", "application/json")],
        b"{\"ports\": [",
    );
    assert_eq!((status, code(&reply)), (400, "bad_request".into()));
    let log = daemon.get("/squall/v1/requests?limit=3");
    assert_eq!(
        (&log["requests"][0]["status"], &log["requests"][0]["path"]),
        (&json!(400), &json!("/squall/v1/leases"))
    );
}

#[test]
fn a_page_of_a_peer_asks_with_the_token_and_never_by_a_cookie_or_a_known_user() {
    let folder = folder("peers");
    let peer = "https://lab2.example:8443";
    // Only pages of other daemons need the token.
    let settings = Settings { peers: vec![peer.parse().expect("an origin")], ..settings(&folder) };
    let daemon = Daemon::start(settings);
    let token = std::fs::read_to_string(folder.join("token")).expect("a token");
    let bearer = format!("Bearer {}", token.trim());
    let login = json!({ "token": token }).to_string();
    let (_, headers, _) = daemon.ask(
        "POST",
        "/squall/v1/login",
        &[("content-type", "application/json")],
        login.as_bytes(),
    );
    let cookie = headers.iter().find(|(name, _)| name == "set-cookie").expect("a cookie");
    let cookie = cookie.1.split(';').next().expect("its value").to_owned();
    let allowed = |headers: &[(String, String)]| {
        let found = headers.iter().find(|(name, _)| name == "access-control-allow-origin");
        found.map(|(_, value)| value.clone())
    };
    let runs = "/squall/v1/runs";
    for (path, shown, origin, status) in [
        (runs, vec![("authorization", bearer.as_str())], peer, 200),
        (runs, vec![], peer, 401),
        (runs, vec![("cookie", cookie.as_str())], peer, 401),
        (runs, vec![("authorization", "Bearer 0123456789abcdef0123")], peer, 401),
        (runs, vec![("authorization", bearer.as_str())], "https://lab2.example", 403),
        (runs, vec![("authorization", bearer.as_str())], "https://evil.example:8443", 403),
        ("/squall/v1/login", vec![("authorization", bearer.as_str())], peer, 403),
        ("/metrics", vec![("authorization", bearer.as_str())], peer, 403),
    ] {
        let all: Vec<_> = shown.into_iter().chain([("origin", origin)]).collect();
        let (got, headers, _) = daemon.ask("GET", path, &all, b"");
        assert_eq!(got, status, "{path} {all:?}");
        assert_eq!(allowed(&headers), (status < 403).then(|| peer.to_owned()), "{path} {all:?}");
        assert!(!headers.iter().any(|(name, _)| name == "access-control-allow-credentials"));
    }
    // A preflight has no token, and its method is not executed.
    let asks = |origin| {
        let headers = [("origin", origin), ("access-control-request-method", "DELETE")];
        daemon.ask("OPTIONS", runs, &headers, b"")
    };
    let (status, headers, _) = asks(peer);
    assert_eq!((status, allowed(&headers)), (204, Some(peer.to_owned())));
    let (status, headers, _) = asks("https://evil.example");
    assert_eq!((status, allowed(&headers)), (403, None));
    // A WebSocket carries the token as a protocol, because pages can set no other header.
    let watch = |protocols: &str| {
        let host = daemon.bound.https;
        let mut stream = TcpStream::connect(host).expect("it listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        let head = format!(
            "GET /squall/v1/watch HTTP/1.1\r\nhost: {host}\r\norigin: {peer}\r\n\
             connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
             sec-websocket-protocol: {protocols}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it takes the request");
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n\r\n") {
            let mut octet = [0];
            stream.read_exact(&mut octet).expect("a whole header");
            reply.push(octet[0]);
        }
        let reply = String::from_utf8(reply).expect("text").to_lowercase();
        let status: u16 = reply.split(' ').nth(1).expect("a status").parse().expect("a number");
        (status, reply.contains("sec-websocket-protocol: squall.v1\r\n"))
    };
    let shown = format!("squall.v1, squall.token.{}", token.trim());
    assert_eq!(watch(&shown), (101, true));
    assert_eq!(watch("squall.v1, squall.token.0123456789abcdef"), (401, false));
    // The daemon's own page may connect to this peer only.
    let (_, headers, _) = daemon.ask("GET", "/", &[], b"");
    let policy = headers.iter().find(|(name, _)| name == "content-security-policy");
    let policy = &policy.expect("a policy").1;
    let connect = "connect-src 'self' https://lab2.example:8443 wss://lab2.example:8443;";
    assert!(policy.contains(connect) || policy.contains("style-src 'unsafe-inline'"), "{policy}");
    assert_eq!(daemon.get("/squall/v1/info")["peers"], json!([peer]));
}

#[test]
fn a_request_refused_over_http2_is_drained_before_the_reply() {
    use http_body_util::{BodyExt, Full, StreamBody};
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };
    let daemon = Daemon::of("http2");
    let at = daemon.bound.https;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let socket = tokio::net::TcpStream::connect(at).await.expect("it listens");
        let executor = hyper_util::rt::TokioExecutor::new();
        let io = hyper_util::rt::TokioIo::new(socket);
        let (client, connection) =
            hyper::client::conn::http2::handshake(executor, io).await.expect("HTTP/2");
        tokio::spawn(connection);
        let ask = |path: &'static str, kind: &'static str, octets: usize| {
            let mut client = client.clone();
            async move {
                let left = Arc::new(AtomicUsize::new(octets));
                let rest = left.clone();
                // Sent in chunks, as by a client that reads a file.
                let pieces = tokio_stream::iter((0..octets.div_ceil(10_000)).map(move |_| {
                    let length = rest.load(Ordering::Relaxed).min(10_000);
                    rest.fetch_sub(length, Ordering::Relaxed);
                    Ok::<_, std::convert::Infallible>(http_body::Frame::data(bytes::Bytes::from(
                        vec![b' '; length],
                    )))
                }));
                let request =
                    hyper::Request::post(format!("http://{at}{path}")).header("content-type", kind);
                let request = request.body(StreamBody::new(pieces)).expect("a request");
                let reply = client
                    .send_request(request)
                    .await
                    .expect("a reply, and no error of the stream");
                let status = reply.status().as_u16();
                let body: Full<bytes::Bytes> =
                    reply.into_body().collect().await.expect("all of it").to_bytes().into();
                drop(body);
                (status, left.load(Ordering::Relaxed))
            }
        };
        for (path, kind, octets, expected) in [
            ("/squall/v1/leases", "text/plain", 600_000, 415),
            ("/squall/v1/nowhere", "application/json", 600_000, 404),
            ("/squall/v1/info", "application/json", 3_000_000, 405),
            ("/squall/v1/login", "application/json", 600_000, 413),
        ] {
            for _ in 0..5 {
                assert_eq!(ask(path, kind, octets).await, (expected, 0), "{path}");
            }
        }
        // An endless body is not drained to its end, and the client still gets its reply.
        let (status, left) = ask("/squall/v1/leases", "text/plain", 200_000_000).await;
        assert!(status == 415 && left > 100_000_000, "{status}, {left} octets left");
    });
}

#[test]
fn a_wrong_token_is_the_answer_over_http2_however_long_the_body() {
    let daemon = Daemon::start(Settings { token: Token::Always, ..settings(&folder("http2-401")) });
    let at = daemon.bound.https;
    let file = folder_of("http2-401-body");
    fs::write(&file, vec![b' '; 1000]).expect("a file");
    for octets in [0, 2_000_000, 7_000_000] {
        let body = format!("@{}", file.display());
        fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(octets).expect("a length");
        let url = format!("http://{at}/squall/v1/runs");
        let arguments = [
            &url,
            "--http2-prior-knowledge",
            "--data-binary",
            &body,
            "-H",
            "authorization: Bearer 0123456789abcdef",
            "-H",
            "content-type: application/json",
            "-H",
            "expect:",
        ];
        let Some(status) = curl(None, &arguments) else { break };
        assert_eq!(status, 401, "{octets} octets");
    }
    _ = fs::remove_file(file);
}

/// A ZeroMQ connection like those of TRex's clients (rfc.zeromq.org/spec/37), after the handshake.
struct Zmq<S>(S);

impl<S: Read + Write> Zmq<S> {
    /// The octets that a client sends before its first message.
    fn hello(kind: &str) -> Vec<u8> {
        let mut octets = vec![0; 64];
        (octets[0], octets[9], octets[10]) = (0xff, 0x7f, 3);
        octets[12..16].copy_from_slice(b"NULL");
        let ready = b"\x05READY\x0bSocket-Type\0\0\0";
        let ready = [&ready[..], &[kind.len() as u8], kind.as_bytes()].concat();
        octets.extend([4, ready.len() as u8]);
        octets.extend(ready);
        octets
    }

    fn request(request: &Value) -> Vec<u8> {
        let request = request.to_string();
        [&[1, 0, 0, request.len() as u8][..], request.as_bytes()].concat()
    }

    fn open(mut stream: S, kind: &str) -> Self {
        stream.write_all(&Self::hello(kind)).expect("it reads");
        let mut greeting = [0; 64];
        stream.read_exact(&mut greeting).expect("a greeting");
        let mut zmq = Self(stream);
        assert!(zmq.frame().starts_with(b"\x05READY"));
        zmq
    }

    fn frame(&mut self) -> Vec<u8> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).expect("a frame");
        let mut length = u64::from(head[1]);
        if head[0] & 2 != 0 {
            let mut rest = [0; 7];
            self.0.read_exact(&mut rest).expect("a length");
            length = rest.iter().fold(length, |length, octet| length << 8 | u64::from(*octet));
        }
        let mut body = vec![0; length as usize];
        self.0.read_exact(&mut body).expect("a body");
        body
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": "1", "method": method, "params": params });
        self.0.write_all(&Self::request(&request)).expect("it reads");
        assert!(self.frame().is_empty(), "the delimiter");
        serde_json::from_slice(&self.frame()).expect("JSON")
    }

    /// Performs the API handshake as TRex's client does, then acquires port 0.
    fn acquire(&mut self) -> Value {
        let hello = json!({ "name": "STL", "major": 5, "minor": 1 });
        let handle = self.ask("api_sync_v2", hello)["result"]["api_h"].clone();
        let acquire = json!({
            "api_h": handle, "port_id": 0, "user": "me", "session_id": 1, "force": true,
        });
        self.ask("acquire", acquire)
    }
}

fn with_trex(name: &str) -> Daemon {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    // An interface that would need --allow: naming it in --trex is sufficient.
    let ports = vec![format!("loop:{name}"), format!("loop:{name}"), "af_packet:lo".into()];
    let trex = Trex {
        ports,
        flows: None,
        headers: false,
        sync: any,
        asynchronous: any,
        allow_anyone: false,
    };
    Daemon::start(Settings {
        plain: false,
        token: Token::Auto,
        trex: Some(trex),
        ..settings(&folder(name))
    })
}

/// The newest entry of the audit whose action starts with `action`.
fn audited(daemon: &Daemon, action: &str) -> Value {
    let socket = daemon.bound.socket.clone().expect("a socket");
    let mut stream = UnixStream::connect(socket).expect("it listens");
    let (_, _, reply) = talk(&mut stream, daemon.bound.https, "GET", "/squall/v1/audit", &[], b"");
    let reply: Value = serde_json::from_slice(&reply).expect("JSON");
    let rows = reply["entries"].as_array().expect("rows").clone();
    let of_it = |row: &Value| row["action"].as_str().is_some_and(|text| text.starts_with(action));
    rows.into_iter().find(of_it).unwrap_or_else(|| panic!("no {action}: {reply}"))
}

#[test]
fn trex_clients_of_the_daemons_user_are_served_and_audited() {
    let daemon = with_trex("trex-own");
    let trex = daemon.bound.trex.clone().expect("it is served");
    let (sync, asynchronous) = trex.sockets.expect("sockets");
    let acquired = Zmq::open(TcpStream::connect(trex.sync).expect("it listens"), "REQ").acquire();
    assert!(acquired["result"].is_string(), "{acquired}");
    let row = audited(&daemon, "TRex acquire");
    assert_eq!((&row["status"], &row["detail"]), (&json!(200), &json!("ports 0")));
    let user = format!("(user {})", own_user());
    assert!(row["source"].as_str().expect("a source").ends_with(&user), "{row}");
    // The same requests over Unix sockets, where subscribers get an event, too.
    let events = UnixStream::connect(asynchronous).expect("it listens");
    events.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let mut events = Zmq::open(events, "SUB");
    // Subscribe to all topics, then send a heartbeat: its reply shows that the subscription is
    // active.
    events.0.write_all(b"\0\x01\x01\x04\x08\x04PING\0\0x").expect("it reads");
    assert_eq!(events.frame(), b"\x04PONGx");
    let mut requests = Zmq::open(UnixStream::connect(sync).expect("it listens"), "REQ");
    assert!(requests.acquire()["result"].is_string());
    assert_eq!(events.frame(), b"{}");
}

fn own_user() -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").expect("a process").uid()
}

#[test]
fn another_user_of_this_machine_gets_a_reason_from_trex_and_no_port() {
    let daemon = with_trex("trex-other");
    let trex = daemon.bound.trex.clone().expect("it is served");
    let acquire = json!({ "jsonrpc": "2.0", "id": "1", "method": "acquire",
        "params": { "port_id": 0, "user": "eve", "session_id": 1, "force": true } });
    let sent = [Zmq::<TcpStream>::hello("REQ"), Zmq::<TcpStream>::request(&acquire)].concat();
    let octal: String = sent.iter().map(|octet| format!("\\{octet:03o}")).collect();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; printf '{octal}' >&3; exec cat <&3",
        trex.sync.port()
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]).current_dir("/").stdout(std::process::Stdio::piped());
    let mut client = match command.uid(4242).gid(4242).spawn() {
        Ok(client) => client,
        Err(error) => return println!("SKIPPED: bash as user 4242: {error}"),
    };
    let mut answer = String::new();
    let mut stdout = client.stdout.take().expect("a pipe");
    while !answer.contains("--trex-allow-anyone") {
        let mut piece = [0; 4096];
        let length = stdout.read(&mut piece).expect("it is open");
        assert!(length > 0, "no reason: {answer:?}");
        answer += &String::from_utf8_lossy(&piece[..length]);
    }
    _ = (client.kill(), client.wait());
    assert!(answer.contains("and this is user 4242"), "{answer:?}");
    let row = audited(&daemon, "TRex acquire");
    assert_eq!((&row["status"], &row["detail"]), (&json!(401), &json!("")));
    assert!(row["source"].as_str().expect("a source").ends_with("(user 4242)"), "{row}");
    // The daemon's own user can use the port.
    let mut own = Zmq::open(TcpStream::connect(trex.sync).expect("it listens"), "REQ");
    assert!(own.acquire()["result"].is_string());
}

/// gRPC's core, Java, Go and .NET open IPv6 sockets where available, and reach 127.0.0.1 under its
/// IPv4-mapped address.
#[test]
fn a_socket_for_both_families_has_its_user_at_every_door() {
    let daemon = with_trex("both-families");
    let mapped = |at: SocketAddr| format!("[::ffff:127.0.0.1]:{}", at.port());
    if let Err(error) = TcpStream::connect(mapped(daemon.bound.https)) {
        return println!("SKIPPED: no IPv6: {error}");
    }
    let runs = format!("https://{}/squall/v1/runs", mapped(daemon.bound.https));
    let grpc = daemon.bound.grpc.expect("it listens");
    let call = format!("http://{}/otg.Openapi/SetConfig", mapped(grpc));
    let grpc = [
        &call,
        "-X",
        "POST",
        "--http2-prior-knowledge",
        "-H",
        "content-type: application/grpc",
        "-H",
        "te: trailers",
        "-D",
        "-",
    ];
    let Some(own) = curl(None, &[&runs]) else { return };
    assert_eq!(own, 200, "the daemon's own user");
    assert_ne!(status_of_grpc(None, &grpc), Some("16".to_owned()), "the daemon's own user");
    let trex = daemon.bound.trex.as_ref().expect("it is served").sync;
    let stream = TcpStream::connect(mapped(trex)).expect("it listens");
    assert!(Zmq::open(stream, "REQ").acquire()["result"].is_string());
    // The audit records only the first refusal within ten seconds.
    let Some(refused) = status_of_grpc(Some(4242), &grpc) else { return };
    assert_eq!(refused, "16", "UNAUTHENTICATED");
    assert_eq!(curl(Some(4242), &[&runs]), Some(401));
    // Over HTTP its status is 200; the audit has the status of the outcome.
    let row = audited(&daemon, "POST /otg.Openapi/SetConfig");
    assert_eq!(row["status"], 401, "{row}");
    assert!(row["source"].as_str().expect("a source").ends_with("(user 4242)"), "{row}");
}

/// The gRPC status in the headers of a reply without messages.
fn status_of_grpc(user: Option<u32>, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("curl");
    command.args(["-sk", "-m", "20", "-o", "/dev/null"]).args(arguments).current_dir("/");
    user.into_iter().for_each(|user| _ = command.uid(user).gid(user));
    let output = command.output().ok()?;
    let head = String::from_utf8_lossy(&output.stdout).into_owned();
    head.lines().find_map(|line| Some(line.strip_prefix("grpc-status: ")?.trim().to_owned()))
}

#[test]
fn profiles_are_bounded_before_they_are_read_and_so_are_their_errors() {
    let daemon = Daemon::of("budget");
    let json = ("content-type", "application/json");
    for path in ["/squall/v1/plan", "/squall/v1/profiles/check", "/squall/v1/runs"] {
        // No body is sent, because the declared length is sufficient.
        let (status, _, reply) =
            daemon.ask("POST", path, &[json, ("content-length", "9000000")], b"");
        let reply = String::from_utf8_lossy(&reply).into_owned();
        assert!(status == 413 && reply.contains("8 MiB"), "{path}: {status} {reply}");
    }
    // A single line of JSON, as programs write it. Counting columns from the start of the line for
    // each error would take quadratic time.
    let stream = json!({ "packet": "eth/ipv4/udp", "rate": "1 kps", "next": "nowhere" });
    let streams = vec![stream; 20_000];
    let text = json!({ "ports": { "A": "null:" }, "stream": streams }).to_string();
    let (status, reply) = daemon.json("POST", "/squall/v1/plan", json!({ "text": text }));
    let details = reply["error"]["details"].as_array().expect("details");
    assert_eq!((status, details.len()), (400, 201));
    assert!(details[200]["message"].as_str().expect("text").contains("stopped after 200 errors"));
    let last = &details[199];
    assert_eq!(last["line"], 1);
    let column = last["column"].as_u64().expect("a column") as usize;
    assert!(text[column - 1..].starts_with("\"nowhere\""), "{last}");
}

#[test]
fn the_limit_of_websockets_is_named_where_it_refuses() {
    let daemon = Daemon::of("websockets");
    let mut open: Vec<_> = (0..256).map(|_| daemon.watch("runs=all")).collect();
    let upgrade = [
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let refused = || {
        let mut stream = TcpStream::connect(daemon.bound.https).expect("it listens");
        let lines: String =
            upgrade.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = "GET /squall/v1/watch HTTP/1.1\r\nconnection: upgrade\r\n";
        let host = daemon.bound.https;
        write!(stream, "{head}host: {host}\r\n{lines}\r\n").expect("it reads");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let mut reply = [0; 2000];
        let length = stream.read(&mut reply).expect("a reply");
        String::from_utf8_lossy(&reply[..length]).into_owned()
    };
    let reply = refused();
    assert!(reply.starts_with("HTTP/1.1 503") && reply.contains("256 WebSockets"), "{reply}");
    // Each accepted socket stays connected and gets all messages.
    for socket in &mut open {
        assert!(matches!(socket.read(), Ok(Message::Text(_))));
    }
    drop(open);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !refused().starts_with("HTTP/1.1 101") {
        assert!(Instant::now() < deadline, "places become free");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_port_has_one_holder_until_it_is_given_back_taken_away_or_forgotten() {
    let daemon = Daemon::of("leases");
    let lease = |owner: &str, port: &str, ttl: f64| {
        daemon.json(
            "POST",
            "/squall/v1/leases",
            json!({ "ports": [port], "owner": owner, "ttl_s": ttl }),
        )
    };
    let (status, of_alice) = lease("alice", "loop:x", 60.0);
    assert_eq!(status, 201);
    let (status, refused) = lease("bob", "loop:x,ring=64", 60.0);
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("port_in_use")));
    let holder = refused["error"]["details"][0]["message"].as_str().expect("a message");
    assert!(holder.starts_with("held by alice for "), "{holder}");
    let (status, refused) =
        daemon.json("POST", "/squall/v1/runs", json!({ "profile": PROFILE.replace("NAME", "x") }));
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("port_in_use")));
    // Alice's run uses Alice's lease; Bob's force stops it.
    let run = daemon.run("x", json!({ "lease": of_alice["id"] }));
    let (status, _) = daemon.json(
        "POST",
        "/squall/v1/leases/release",
        json!({ "ports": ["loop:x"], "owner": "dave" }),
    );
    assert_eq!(status, 200);
    let ended =
        daemon.until(&format!("/squall/v1/runs/{run}"), |run| run["state"] == "interrupted");
    let why = ended["error"].as_str().expect("why");
    assert!(why.starts_with("its ports were taken away by dave at 127.0.0.1:"), "{why}");
    let id = of_alice["id"].as_str().unwrap();
    let (status, reply) =
        daemon.json("POST", &format!("/squall/v1/leases/{id}/renew"), Value::Null);
    assert_eq!(
        (status, reply["error"]["message"].as_str().is_some_and(|text| text.contains(why))),
        (404, true),
        "{reply}"
    );
    let (status, of_bob) = lease("bob", "loop:x", 1.0);
    assert_eq!(status, 201, "{of_bob}");
    // Bob sends no request during the lease's time to live, so the lease expires.
    daemon.until("/squall/v1/leases", |leases| leases["leases"] == json!([]));
    let (_, of_carol) = lease("carol", "loop:x", 60.0);
    let path = format!("/squall/v1/leases/{}", of_carol["id"].as_str().expect("free again"));
    assert_eq!(daemon.json("DELETE", &path, Value::Null).0, 204);
    assert_eq!(daemon.json("GET", &path, Value::Null).0, 404);
}

#[test]
fn the_audit_survives_a_restart() {
    let mut daemon = Daemon::start(Settings { token: Token::Always, ..settings(&folder("audit")) });
    let token = format!("Bearer {}", daemon.bound.new_token.clone().expect("it was made now"));
    let ask = |daemon: &Daemon, method: &str, path: &str, body: Value| {
        let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
        let octets = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let (status, _, reply) = daemon.ask(method, path, &headers, &octets);
        (status, serde_json::from_slice::<Value>(&reply).unwrap_or(Value::Null))
    };
    let config = json!({ "ports": [{ "name": "p", "location": "loop:audit" }] });
    assert_eq!(ask(&daemon, "POST", "/config", config.clone()).0, 200);
    let run = json!({ "profile": PROFILE.replace("NAME", "audited"), "owner": "alice" });
    let (_, run) = ask(&daemon, "POST", "/squall/v1/runs", run);
    let run = run["run"]["id"].as_str().expect("a run").to_owned();
    let force = json!({ "ports": ["loop:audit", "loop:audited"], "owner": "bob" });
    assert_eq!(ask(&daemon, "POST", "/squall/v1/leases/release", force).0, 200);
    // The OTG session that lost a port gets a warning once.
    let (status, warned) = ask(&daemon, "POST", "/config", config.clone());
    let warnings = warned["warnings"][0].as_str().unwrap_or_default().to_owned();
    assert!(status == 200 && warnings.contains("taken away by bob at 127.0.0.1:"), "{warned}");
    assert_eq!(ask(&daemon, "POST", "/config", config).1["warnings"], json!([]));
    for _ in 0..5 {
        assert_eq!(
            daemon.ask("GET", "/squall/v1/runs", &[("authorization", "Bearer x")], b"").0,
            401
        );
    }
    let audit =
        |daemon: &Daemon| ask(daemon, "GET", "/squall/v1/audit", Value::Null).1["entries"].clone();
    let before = audit(&daemon);
    let rows = before.as_array().expect("entries").clone();
    let find = |action: &str| {
        let mut found = rows.iter().filter(|row| row["action"] == action);
        (found.next().unwrap_or_else(|| panic!("no {action} in {rows:?}")).clone(), found.count())
    };
    let (started, _) = find("POST /squall/v1/runs");
    assert_eq!((&started["who"], &started["status"]), (&json!("token"), &json!(201)));
    assert!(
        started["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains(&run) && detail.contains("alice"))
    );
    assert!(
        started["source"].as_str().is_some_and(|source| source.starts_with("127.0.0.1:")),
        "{started}"
    );
    let (forced, _) = find("POST /squall/v1/leases/release");
    let detail = forced["detail"].as_str().expect("what it did");
    assert!(
        detail.contains("bob at 127.0.0.1") && detail.contains("of alice away: loop:audited"),
        "{detail}"
    );
    assert!(detail.contains("of otg away: loop:audit"), "{detail}");
    let (refused, others) = find("GET /squall/v1/runs");
    assert_eq!((&refused["status"], others), (&json!(401), 0), "one for many");
    find("POST /config");
    find("start");
    daemon.stop();
    let again = Daemon::start(Settings { token: Token::Always, ..settings(&daemon.data) });
    let after = audit(&again).as_array().expect("entries").clone();
    assert!(after.ends_with(&rows) && after.iter().any(|row| row["action"] == "end"), "{after:?}");
    let oldest = rows.last().expect("some")["n"].clone();
    let path = format!("/squall/v1/audit?before={}", oldest.as_i64().expect("a number") + 1);
    assert_eq!(ask(&again, "GET", &path, Value::Null).1["entries"], json!([rows.last()]));
}

#[test]
fn traffic_of_a_client_that_is_gone_stops_with_its_lease() {
    let daemon = Daemon::of("gone");
    let run = daemon.run("gone", json!({ "ttl_s": 1.0 }));
    // Listing the runs renews no lease.
    let over = |list: &Value| list["runs"][0]["state"] == "interrupted";
    let list = daemon.until("/squall/v1/runs", over);
    assert_eq!(list["runs"][0]["id"], json!(run));
    assert!(list["runs"][0]["error"].as_str().unwrap().contains("lease has expired"), "{list}");
    assert_eq!(daemon.get("/squall/v1/leases")["leases"], json!([]));
}

#[test]
fn a_held_run_starts_at_the_given_instant_of_the_cluster_clock() {
    let daemon = Daemon::of("held");
    const SHIFT: u64 = 7_000_000_000_000;
    let clock = |bound: u64| json!({ "shift_ns": SHIFT, "bound_ns": bound });
    let wanted = json!({ "hold": true, "node": "n1", "part": "1/1", "clock": clock(900) });
    let run = daemon.run("held", wanted);
    let path = format!("/squall/v1/runs/{run}");
    let post = |what: &str, body: Value| daemon.json("POST", &format!("{path}/{what}"), body);
    assert_eq!(daemon.get(&path)["state"], "ready");
    assert_eq!(post("pause", json!({})).0, 400);
    let (status, reply) = daemon.json("GET", &format!("{path}/hosts"), Value::Null);
    assert_eq!((status, &reply["error"]["code"]), (409, &json!("run_starting")), "{reply}");
    let now = || daemon.get("/squall/v1/clock")["monotonic_ns"].as_u64().expect("a time") + SHIFT;
    let (status, reply) = post("go", json!({ "at_ns": now() - 1 }));
    assert_eq!((status, &reply["error"]["code"]), (409, &json!("too-late")), "{reply}");
    let renewed = |body: Value| daemon.json("PUT", &format!("{path}/clock"), body);
    assert_eq!(renewed(clock(500)).0, 200);
    assert_eq!(renewed(json!({ "shift_ns": 0, "drift_ppb": 1e9, "bound_ns": 1 })).0, 400);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(daemon.get(&format!("{path}/stats"))["report"], Value::Null, "nothing was sent");
    // A busy machine may read the time too late and refuse it, so try later times.
    let (at, status, row) = (0..6)
        .map(|again| {
            let at = now() + (300_000_000_u64 << again);
            let (status, row) = post("go", json!({ "at_ns": at }));
            (at, status, row)
        })
        .find(|(.., row)| row["error"]["code"] != "too-late")
        .expect("a time that has not passed");
    assert_eq!((status, &row["state"]), (200, &json!("running")), "{row}");
    let (status, reply) = post("go", json!({ "at_ns": at }));
    assert_eq!((status, &reply["error"]["code"]), (409, &json!("not-ready")), "{reply}");
    daemon.until(&format!("{path}/stats"), |stats| {
        stats["report"]["streams"][0]["tx_packets"].as_u64().is_some_and(|n| n > 0)
    });
    assert!(now() >= at, "it began before its time");
    assert_eq!(renewed(clock(600)).0, 200);
    assert_eq!(post("stop", Value::Null).0, 200);
    daemon.until(&path, |run| run["state"] == "done");
    let report = daemon.get(&format!("{path}/report"));
    assert_eq!((&report["node"], &report["start"]["at_ns"]), (&json!("n1"), &json!(at)));
    assert!(report["start"]["error_ns"].as_i64().is_some_and(|error| error >= 0), "{report}");
    assert_eq!(report["clock"]["bound_ns"], 600);
}

#[test]
fn a_held_run_ends_with_its_lease_or_when_it_is_stopped() {
    let daemon = Daemon::of("held-lease");
    let gone = daemon.run("held-gone", json!({ "hold": true, "ttl_s": 1.0 }));
    let over = |list: &Value| list["runs"][0]["state"] == "interrupted";
    assert_eq!(daemon.until("/squall/v1/runs", over)["runs"][0]["id"], json!(gone));
    assert_eq!(daemon.get("/squall/v1/leases")["leases"], json!([]));
    let run = daemon.run("held-gone", json!({ "hold": true }));
    let path = format!("/squall/v1/runs/{run}");
    assert_eq!(daemon.json("POST", &format!("{path}/stop"), Value::Null).0, 200);
    daemon.until(&path, |run| run["ended"].is_string());
    assert_eq!(daemon.get(&format!("{path}/report"))["ports"][0]["tx"]["packets"], 0);
}

#[test]
fn a_run_is_begun_changed_watched_and_stopped_and_its_report_stays() {
    let mut daemon = Daemon::of("runs");
    let run = daemon
        .run("runs", json!({ "name": "first", "owner": "alice", "fail_if": ["loss > 1000000"] }));
    let path = format!("/squall/v1/runs/{run}");
    let stats = format!("{path}/stats");
    daemon.until(&stats, |stats| {
        stats["report"]["streams"][0]["rx"]["packets"].as_u64().is_some_and(|n| n > 0)
    });
    let post = |what: &str, body: Value| daemon.json("POST", &format!("{path}/{what}"), body);
    assert_eq!(post("rate", json!({ "mult": 5 })).0, 200);
    let fast = |stats: &Value| {
        stats["sample"]["ports"][0]["tx_pps"].as_f64().is_some_and(|pps| pps > 1500.0)
    };
    daemon.until(&stats, fast);
    assert_eq!(post("rate", json!({ "stream": "wed", "rate": "1 pps" })).0, 404);
    assert_eq!(post("rate", json!({ "stream": "web" })).0, 400);
    assert_eq!(post("rate", json!({ "mult": "0" })).0, 400);
    let (status, row) = post("pause", json!({}));
    assert_eq!((status, &row["state"]), (200, &json!("paused")));
    daemon.until(&stats, |stats| stats["sample"]["ports"][0]["tx_pps"] == json!(0.0));
    assert_eq!(post("resume", Value::Null).1["state"], "running");
    assert_eq!(daemon.json("DELETE", &path, Value::Null).0, 409);
    assert_eq!(daemon.json("PATCH", &path, json!({ "note": "a note" })).0, 200);
    assert_eq!(post("stop", Value::Null).0, 200);
    let row = daemon.until(&path, |run| run["state"] == "done");
    assert_eq!(
        (&row["verdict"]["valid"].is_boolean(), &row["passed"], &row["note"]),
        (&true, &json!(true), &json!("a note"))
    );
    assert_eq!(post("pause", json!({})).1["error"]["code"], "run_over");
    let report = daemon.get(&format!("{path}/report"));
    assert!(report["streams"][0]["tx_packets"].as_u64().unwrap() > 0);
    let (status, headers, page) = daemon.ask("GET", &format!("{path}/report.html"), &[], b"");
    assert!(status == 200 && String::from_utf8_lossy(&page).contains("<html"));
    assert!(
        header(&headers, "content-security-policy").is_some_and(|value| value.contains("sandbox"))
    );
    let (_, _, text) = daemon.ask("GET", &format!("{path}/profile"), &[], b"");
    assert_eq!(String::from_utf8_lossy(&text), PROFILE.replace("NAME", "runs"));
    // The daemon still has the run after a restart.
    daemon.stop();
    let again = Daemon::start(settings(&daemon.data));
    assert_eq!(again.bound.new_token, None, "the token stays");
    assert_eq!(again.get(&path)["note"], "a note");
    assert_eq!(again.get(&format!("{path}/report")), report);
    assert_eq!(again.get("/squall/v1/runs?q=FIRST&state=done")["runs"][0]["id"], json!(run));
    assert_eq!(again.get("/squall/v1/runs?q=first%25&state=done")["runs"], json!([]));
    assert_eq!(again.json("DELETE", &path, Value::Null).0, 204);
    assert_eq!(again.json("GET", &path, Value::Null).0, 404);
}

#[test]
fn a_start_that_is_refused_leaves_neither_a_run_nor_a_lease() {
    let daemon = Daemon::of("refused");
    let (status, reply) = daemon.json(
        "POST",
        "/squall/v1/captures",
        json!({ "ports": ["loop:refused"], "filter": "udp and and" }),
    );
    assert!(status >= 400 && reply["error"]["message"].is_string(), "{status} {reply}");
    assert_eq!(daemon.get("/squall/v1/runs")["runs"], json!([]));
    assert_eq!(daemon.get("/squall/v1/leases")["leases"], json!([]));
    for (key, value, why) in [
        ("fliter", json!("udp"), "there is no option \"fliter\""),
        ("snaplen", json!("all"), "snaplen = \"all\": "),
        ("format", json!("erf"), "format = \"erf\": "),
        ("ttl_s", json!("x"), "ttl_s"),
    ] {
        let body = json!({ "ports": ["loop:refused"], key: value });
        let (status, reply) = daemon.json("POST", "/squall/v1/captures", body);
        let message = reply["error"]["message"].as_str().unwrap_or_default();
        assert!(status >= 400 && message.contains(why), "{status} {reply}");
    }
}

#[test]
fn at_the_end_of_a_run_its_report_and_its_ports_are_available() {
    let daemon = Daemon::of("done");
    // Enough runs to expose a gap between the two.
    for i in 0..25 {
        let run = daemon.run("done", json!({ "options": { "packets": 20 + i, "linger": 0.0 } }));
        let path = format!("/squall/v1/runs/{run}");
        let deadline = Instant::now() + TIMEOUT;
        while daemon.get(&path)["state"] != "done" {
            assert!(Instant::now() < deadline, "run {i} goes on");
        }
        let report = daemon.get(&format!("{path}/report"));
        assert_eq!(report["ports"][0]["tx"]["packets"], 20 + i, "run {i}");
        assert_eq!(daemon.get("/squall/v1/leases")["leases"], json!([]), "run {i}");
        let over = daemon.get("/squall/v1/runs?state=done&limit=1000");
        assert_eq!(over["runs"].as_array().map(Vec::len), Some(i + 1));
        assert_eq!(daemon.get("/squall/v1/runs?state=live")["runs"], json!([]));
    }
}

#[test]
fn a_note_that_comes_as_a_run_ends_does_not_bring_it_back_to_life() {
    let daemon = Daemon::of("noted");
    for i in 0..10 {
        let run = daemon.run("noted", json!({ "options": { "packets": 20, "linger": 0.0 } }));
        let path = format!("/squall/v1/runs/{run}");
        let deadline = Instant::now() + TIMEOUT;
        let (mut n, mut over) = (0, 0);
        while over < 3 {
            assert!(Instant::now() < deadline, "run {i} goes on");
            n += 1;
            let (status, row) = daemon.json("PATCH", &path, json!({ "note": format!("note {n}") }));
            assert_eq!(status, 200, "{row}");
            over += usize::from(row["state"] == "done");
        }
        let row = daemon.get(&path);
        assert_eq!((&row["state"], &row["note"]), (&json!("done"), &json!(format!("note {n}"))));
        assert_eq!(
            daemon.get("/squall/v1/runs?state=done&limit=1000")["runs"].as_array().map(Vec::len),
            Some(i + 1)
        );
    }
}

#[test]
fn a_run_of_the_daemon_has_the_options_of_squall_run() {
    let daemon = Daemon::of("options");
    let started = |options: Value| {
        let body = json!({ "profile": PROFILE.replace("NAME", "options"), "options": options });
        daemon.json("POST", "/squall/v1/runs", body)
    };
    let report = |options: Value| {
        let (status, reply) = started(options);
        assert_eq!(status, 201, "{reply}");
        let path = format!("/squall/v1/runs/{}", reply["run"]["id"].as_str().unwrap());
        daemon.until(&path, |run| run["state"] == "done");
        daemon.get(&format!("{path}/report"))
    };
    let bins = |report: &Value| report["ports"][1]["rx"]["arrival_gap_bins"].clone();
    let plain = report(json!({ "packets": 20 }));
    assert_eq!(bins(&plain), Value::Null);
    let counted = bins(&report(json!({ "packets": 20, "gap_bins": [50, 100_000] })));
    assert_eq!(
        (&counted["width_ns"], counted["counts"].as_array().map(Vec::len)),
        (&json!(100_000), Some(50))
    );
    // 20 frames have 19 gaps between them.
    let all =
        counted["counts"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum::<u64>();
    assert_eq!(all + counted["beyond"].as_u64().unwrap(), 19);
    let bound = report(json!({ "packets": 20, "cpus": [0] }));
    assert_eq!(
        (bound["workers"].as_array().map(Vec::len), &bound["workers"][0]["cpu"]),
        (Some(1), &json!(0))
    );
    let since = Instant::now();
    report(json!({ "packets": 20, "linger": 1.5 }));
    assert!(since.elapsed() > Duration::from_millis(1500), "{:?}", since.elapsed());
    // In virtual time, five minutes at 1 kpps take almost no time.
    let since = Instant::now();
    let leapt = report(json!({ "packets": 300_000, "clock": "virtual" }));
    assert!(
        leapt["ports"][0]["tx"]["packets"] == 300_000 && since.elapsed() < Duration::from_secs(100)
    );
    for (wrong, output) in [
        (json!({ "clock": "late" }), "late"),
        (json!({ "cpus": [] }), "cpus"),
        (json!({ "linger": -1 }), "linger"),
        (json!({ "gap_bins": [0, 5] }), "gap_bins"),
        (json!({ "gap_bins": [2_000_000, 5] }), "gap_bins"),
        (json!({ "gap_bins": [5, 0] }), "gap_bins"),
    ] {
        let (status, reply) = started(wrong.clone());
        assert_eq!(status, 400, "{wrong}: {reply}");
        assert!(reply["error"]["message"].as_str().unwrap().contains(output), "{wrong}: {reply}");
    }
}

#[test]
fn a_rate_is_changed_by_a_part_of_what_it_is() {
    let daemon = Daemon::of("by");
    let run = daemon.run("by", json!({}));
    let path = format!("/squall/v1/runs/{run}");
    let post = |body: Value| daemon.json("POST", &format!("{path}/rate"), body);
    let asked = |pps: f64| {
        daemon.until(&format!("{path}/stats"), |stats| {
            stats["report"]["streams"][0]["asked_pps"]
                .as_f64()
                .is_some_and(|asked| (asked - pps).abs() < 1e-6)
        })
    };
    assert_eq!(post(json!({ "stream": "web", "by": 1.1 })).0, 200);
    asked(1100.0);
    assert_eq!(post(json!({ "stream": "web", "by": "0.5" })).0, 200);
    asked(550.0);
    let (status, row) = post(json!({ "by": 2 }));
    assert_eq!((status, &row["mult"]), (200, &json!(2.0)));
    asked(1100.0);
    let (status, row) = post(json!({ "by": 3 }));
    assert_eq!((status, &row["mult"]), (200, &json!(6.0)));
    asked(3300.0);
    // A percentage refers to the profile's rates (`web` now has 550), not to the capacity of a
    // link.
    let (status, row) = post(json!({ "mult": "50%" }));
    assert_eq!((status, &row["mult"]), (200, &json!(0.5)), "{row}");
    asked(275.0);
    assert_eq!(post(json!({ "mult": " 600 %" })).1["mult"], json!(6.0));
    asked(3300.0);
    for (wrong, status) in [
        (json!({ "stream": "wed", "by": 2 }), 404),
        (json!({ "stream": "web", "by": 0 }), 400),
        (json!({ "stream": "web", "by": "50%" }), 400),
        (json!({ "stream": "web", "by": 2, "rate": "1 pps" }), 400),
        (json!({ "by": 2, "mult": 2 }), 400),
        (json!({ "mult": "0%" }), 400),
        (json!({ "mult": "%" }), 400),
        (json!({ "mult": "1 Mpps%" }), 400),
    ] {
        assert_eq!(post(wrong.clone()).0, status, "{wrong}");
    }
    // `max` has no rate to double, because a `loop` link has no nominal speed.
    assert_eq!(post(json!({ "stream": "web", "rate": "max" })).0, 200);
    let (status, reply) = post(json!({ "stream": "web", "by": 2 }));
    assert!(
        status == 400 && reply["error"]["message"].as_str().unwrap().contains("rate max"),
        "{reply}"
    );
}

#[test]
fn an_end_stops_traffic_and_writes_history_and_a_kill_leaves_reports_that_are_seconds_old() {
    let mut daemon = Daemon::of("end");
    let run = daemon.run("end", json!({}));
    let is_stored = || {
        let history =
            rusqlite::Connection::open(daemon.data.join("history.sqlite")).expect("a database");
        let stored =
            history.query_row("SELECT report IS NOT NULL FROM runs WHERE id = ?1", [&run], |row| {
                row.get(0)
            });
        stored.unwrap_or(false)
    };
    let deadline = Instant::now() + TIMEOUT;
    while !is_stored() {
        assert!(Instant::now() < deadline, "no report is stored while the run goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
    // A run that has just started has no report yet.
    let young = daemon.run("young", json!({}));
    // Copy the files that a daemon would leave if it were killed now.
    let killed = folder("killed");
    fs::create_dir_all(&killed).expect("a folder");
    for name in ["history.sqlite", "history.sqlite-wal"] {
        fs::copy(daemon.data.join(name), killed.join(name)).expect("a database in WAL mode");
    }
    fs::create_dir_all(killed.join("unfinished")).expect("a folder");
    fs::write(killed.join("unfinished/half"), "half").expect("a file");
    let began = Instant::now();
    daemon.stop();
    // The daemon's stop must end its runs, because nothing else would.
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    let again = Daemon::start(settings(&daemon.data));
    let row = again.get(&format!("/squall/v1/runs/{run}"));
    assert!(
        row["error"].as_str().is_some_and(|error| error.starts_with("the daemon ended")),
        "{row}"
    );
    assert_eq!(row["state"], "interrupted");
    assert_ne!(row["ended"], Value::Null);
    let after_kill = Daemon::start(settings(&killed));
    let row = after_kill.get(&format!("/squall/v1/runs/{run}"));
    assert_eq!((&row["state"], &row["verdict"]["valid"]), (&json!("interrupted"), &json!(false)));
    assert!(row["error"].as_str().is_some_and(|error| error.contains("killed")), "{row}");
    assert!(row["elapsed_s"].as_f64() > Some(0.5) && row["ended"].is_string(), "{row}");
    let report = after_kill.get(&format!("/squall/v1/runs/{run}/report"));
    assert!(report["streams"][0]["tx_packets"].as_u64() > Some(100), "{report}");
    let row = after_kill.get(&format!("/squall/v1/runs/{young}"));
    assert_eq!((&row["state"], &row["verdict"]), (&json!("interrupted"), &Value::Null));
    assert_eq!(
        after_kill.json("GET", &format!("/squall/v1/runs/{young}/report"), Value::Null).0,
        404
    );
    assert_eq!(
        after_kill.get("/squall/v1/runs?state=interrupted")["runs"].as_array().map(Vec::len),
        Some(2)
    );
    assert!(!killed.join("unfinished/half").exists());
}

/// A device that carries 10,000 frames/s, in virtual time to keep the test short.
fn throughput(link: &str) -> Value {
    json!({
        "method": "rfc2544", "max_rate": "100kpps", "rest_s": 0,
        "ports": { "A": format!("loop:{link},virtual,drain=10kpps,buffer=50") },
        "settings": { "tests": ["throughput"], "frame_sizes": [64], "trial_s": 1 },
    })
}

/// A one-hour soak test in trials of a third of a second.
fn soak(link: &str) -> Value {
    json!({
        "method": "soak", "max_rate": "1kpps", "rest_s": 0, "options": { "linger": "10ms" },
        "ports": { "A": format!("loop:{link}") },
        "settings": { "duration_s": 3600, "trial_s": 0.3, "frame_size": 64 },
    })
}

fn start_test(daemon: &Daemon, body: Value) -> String {
    let (status, reply) = daemon.json("POST", "/squall/v1/tests", body);
    assert_eq!((status, &reply["run"]["kind"]), (201, &json!("test")), "{reply}");
    reply["run"]["id"].as_str().expect("a name").to_owned()
}

fn trials(report: &Value) -> &Vec<Value> {
    report["trials"].as_array().expect("a list")
}

#[test]
fn a_standard_test_is_a_run_whose_report_is_its_outcome() {
    let daemon = Daemon::of("tests");
    let text = |path: &str| {
        let (status, _, body) = daemon.ask("GET", path, &[], b"");
        assert_eq!(status, 200, "{path}");
        String::from_utf8(body).expect("text")
    };
    let found = |run: &str| {
        let row = daemon.until(&format!("/squall/v1/runs/{run}"), |row| row["ended"].is_string());
        assert_eq!(row["state"], "done", "{row}");
        assert_eq!((&row["test"]["status"], &row["passed"]), (&json!("measured"), &Value::Null));
        assert_eq!(row["verdict"]["status"], "valid", "{row}");
        daemon.get(&format!("/squall/v1/runs/{run}/report"))
    };
    let run = start_test(&daemon, throughput("tests"));
    let report = found(&run);
    let value = report["figures"][0]["value"].as_f64().expect("a number");
    assert!(value > 9_950.0 && value <= 10_000.0, "{report}");
    let row = daemon.get(&format!("/squall/v1/runs/{run}"));
    assert_eq!(row["test"]["trial"], trials(&report).len());
    assert!(text(&format!("/squall/v1/runs/{run}/report.html")).contains("RFC 2544"));
    let lines = text(&format!("/squall/v1/runs/{run}/report.csv")).lines().count();
    assert_eq!(lines, trials(&report).len() + 1);
    assert!(text(&format!("/squall/v1/runs/{run}/report.xml")).contains("squall.rfc2544"));
    let journal = text(&format!("/squall/v1/files/{run}.journal"));
    assert_eq!(journal.lines().count(), trials(&report).len() + 1);
    assert!(text("/metrics").contains(&format!("squall_test_trials{{run=\"{run}\"")));
    let list = daemon.get("/squall/v1/runs?kind=test&state=done");
    assert_eq!(list["runs"].as_array().map(Vec::len), Some(1));
    // Start the test again with the command from its report.
    let command = report["command"].as_str().expect("text");
    let (begin, body) = command.split_once(" -d '").expect("a body");
    assert!(begin.ends_with(&format!("http://{}/squall/v1/tests", daemon.bound.https)), "{begin}");
    let body = serde_json::from_str(body.trim_end_matches('\'')).expect("JSON");
    let again = found(&start_test(&daemon, body));
    // All tables are equal. Only the CPU times of the trials may differ.
    assert_eq!(again["tables"], report["tables"]);
    assert_eq!(again["figures"], report["figures"]);
    assert_eq!(trials(&again).len(), trials(&report).len());
    // A run of another kind has no such tables.
    let other = daemon.run("other", json!({}));
    daemon.json("POST", &format!("/squall/v1/runs/{other}/stop"), Value::Null);
    daemon.until(&format!("/squall/v1/runs/{other}"), |row| row["ended"].is_string());
    let (status, _, _) =
        daemon.ask("GET", &format!("/squall/v1/runs/{other}/report.csv"), &[], b"");
    assert_eq!(status, 404);
}

#[test]
fn a_standard_test_is_watched_stopped_and_continued() {
    let daemon = Daemon::of("soaks");
    let mut socket = daemon.watch("runs=all&every_ms=100");
    let run = start_test(&daemon, soak("soaks"));
    let path = format!("/squall/v1/runs/{run}");
    let seen = loop {
        let Message::Text(text) = socket.read().expect("a message") else { continue };
        let message: Value = serde_json::from_str(&text).expect("JSON");
        if message["run"]["test"]["trial"].as_u64() >= Some(3) {
            break message["run"]["test"].clone();
        }
    };
    assert_eq!(seen["method"], "soak");
    assert!(seen["estimate"]["trials"].as_u64() >= Some(12_000), "{seen}");
    assert!(seen["latest"].as_array().is_some_and(|rows| rows.len() >= 2), "{seen}");
    assert!(seen["latest"][0]["sent"].as_u64() > Some(50), "{seen}");
    let so_far = daemon.get(&format!("{path}/report"));
    assert!(so_far["verdict"]["status"] == "stopped" && trials(&so_far).len() >= 2, "{so_far}");
    let (status, reply) = daemon.json("POST", &format!("{path}/pause"), json!({}));
    assert_eq!((status, &reply["error"]["code"]), (409, &json!("run_is_test")));
    let (status, reply) = daemon.json("GET", &format!("{path}/hosts"), Value::Null);
    assert_eq!((status, &reply["error"]["code"]), (409, &json!("run_is_test")));
    assert!(reply.to_string().contains("a standard test shows no hosts"), "{reply}");
    let (status, reply) = daemon.json("POST", "/squall/v1/tests", soak("soaks"));
    assert_eq!((status, &reply["error"]["code"]), (409, &json!("port_in_use")));
    let mut same = soak("elsewhere");
    same["journal"] = seen["journal"].clone();
    let (status, reply) = daemon.json("POST", "/squall/v1/tests", same);
    assert!(status == 400 && reply.to_string().contains("writes to it"), "{reply}");
    daemon.json("POST", &format!("{path}/stop"), Value::Null);
    let row = daemon.until(&path, |row| row["ended"].is_string());
    assert_eq!((&row["state"], &row["test"]["status"]), (&json!("done"), &json!("stopped")));
    assert_eq!(row["verdict"]["status"], "interrupted");
    let stopped = daemon.get(&format!("{path}/report"));
    assert!(trials(&stopped).starts_with(trials(&so_far)), "{stopped}");
    assert_eq!(daemon.get("/squall/v1/leases")["leases"], json!([]));
    let mut more = soak("soaks");
    more["journal"] = seen["journal"].clone();
    let path = format!("/squall/v1/runs/{}", start_test(&daemon, more));
    daemon.until(&path, |row| {
        row["test"]["trial"].as_u64() > Some(trials(&stopped).len() as u64 + 1)
    });
    daemon.json("POST", &format!("{path}/stop"), Value::Null);
    daemon.until(&path, |row| row["ended"].is_string());
    let all = daemon.get(&format!("{path}/report"));
    assert!(trials(&all).len() > trials(&stopped).len(), "{all}");
    assert!(trials(&all).starts_with(trials(&stopped)), "{all}");
}

#[test]
fn the_end_of_a_daemon_keeps_the_trials_of_a_test() {
    let mut daemon = Daemon::of("soak-end");
    let path = format!("/squall/v1/runs/{}", start_test(&daemon, soak("soak-end")));
    daemon.until(&path, |row| row["test"]["trial"].as_u64() >= Some(2));
    let before = daemon.get(&format!("{path}/report"));
    daemon.stop();
    let again = Daemon::start(settings(&daemon.data));
    let row = again.get(&path);
    assert_eq!((&row["state"], &row["test"]["status"]), (&json!("interrupted"), &json!("stopped")));
    let after = again.get(&format!("{path}/report"));
    assert!(!trials(&before).is_empty() && trials(&after).starts_with(trials(&before)), "{after}");
}

#[test]
fn a_second_daemon_in_the_same_folder_is_refused() {
    let daemon = Daemon::of("twice");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let refused =
        runtime.block_on(serve_until(settings(&daemon.data), |_| panic!("it serves"), async {}));
    assert!(refused.expect_err("refused").to_string().contains("another daemon"));
}

#[test]
fn watchers_get_changes() {
    let daemon = Daemon::of("watch");
    let mut socket = daemon.watch("runs=all&every_ms=100&log=1");
    let mut next = move || loop {
        match socket.read().expect("a message") {
            Message::Text(text) => return serde_json::from_str::<Value>(&text).expect("JSON"),
            _ => continue,
        }
    };
    let mut until = |kind: &str| loop {
        let message = next();
        if message["type"] == kind {
            return message;
        }
    };
    assert_eq!(until("hello")["runs"], json!([]));
    let run = daemon.run("watched", json!({}));
    assert_eq!(until("run")["run"]["id"], json!(run));
    assert_eq!(until("names")["streams"], json!(["web"]));
    let sample = until("sample");
    assert_eq!(
        (
            &sample["run"],
            sample["ports"][0].as_array().map(Vec::len),
            sample["streams"][0].as_array().map(Vec::len)
        ),
        (&json!(run), Some(8), Some(10))
    );
    daemon.json("POST", &format!("/squall/v1/runs/{run}/pause"), json!({}));
    while until("run")["run"]["state"] != "paused" {}
    // Unchanged rows are not sent again.
    while until("sample")["streams"] != json!([]) {}
    daemon.get("/squall/v1/info");
    assert!(until("log")["entries"][0]["method"].is_string());
    daemon.json("POST", &format!("/squall/v1/runs/{run}/stop"), Value::Null);
    assert_eq!(until("ended")["id"], json!(run));
}

#[test]
fn a_socket_that_watches_a_run_keeps_its_lease() {
    let daemon = Daemon::of("kept");
    let run = daemon.run("kept", json!({ "ttl_s": 3.0 }));
    let mut socket = daemon.watch(&format!("runs={run}&every_ms=200"));
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(4500) {
        socket.read().expect("a message");
    }
    assert_eq!(daemon.get("/squall/v1/runs")["runs"][0]["state"], "running");
    drop(socket);
    daemon.until("/squall/v1/runs", |list| list["runs"][0]["state"] == "interrupted");
}

#[test]
fn a_run_that_sent_nothing_is_not_done() {
    let daemon = Daemon::of("nothing");
    let profile =
        PROFILE.replace("NAME", "nothing").replace("latency = true", "start_delay = \"1h\"");
    let asked = json!({ "profile": profile, "options": { "duration": 0.2, "linger": 0.0 } });
    let (status, reply) = daemon.json("POST", "/squall/v1/runs", asked);
    assert_eq!(status, 201, "{reply}");
    let path = format!("/squall/v1/runs/{}", reply["run"]["id"].as_str().unwrap());
    let row = daemon.until(&path, |run| !run["ended"].is_null());
    assert_eq!((&row["state"], &row["error"]), (&json!("failed"), &json!("nothing was sent")));
    assert_eq!(daemon.get(&format!("{path}/report"))["ports"][0]["tx"]["packets"], 0);
}

#[test]
fn the_name_of_a_run_does_not_come_again() {
    let mut daemon = Daemon::of("names");
    let mut known = Vec::new();
    let mut begin = |daemon: &Daemon| {
        let run = daemon.run("names", json!({ "options": { "packets": 2, "linger": 0.0 } }));
        daemon.until(&format!("/squall/v1/runs/{run}"), |run| !run["ended"].is_null());
        assert!(!known.contains(&run), "{run} comes again");
        known.push(run.clone());
        run
    };
    let (first, second) = (begin(&daemon), begin(&daemon));
    for run in [&first, &second] {
        assert_eq!(daemon.json("DELETE", &format!("/squall/v1/runs/{run}"), Value::Null).0, 204);
    }
    // Copy the files as a killed daemon would leave them: written, but without the work at the end.
    let killed = folder("names-killed");
    fs::create_dir_all(&killed).expect("a folder");
    for name in ["history.sqlite", "history.sqlite-wal"] {
        fs::copy(daemon.data.join(name), killed.join(name)).expect("a database in WAL mode");
    }
    begin(&Daemon::start(settings(&killed)));
    daemon.stop();
    let third = begin(&Daemon::start(settings(&daemon.data)));
    // After a clean shutdown, the numbers have no gap.
    let number = |run: &str| {
        run.rsplit('-').next().and_then(|number| number.parse::<u64>().ok()).expect("a number")
    };
    assert!(number(&third) == number(&second) + 1 || third[..10] != second[..10], "{known:?}");
}

#[test]
fn prometheus_reads_what_runs_count() {
    let daemon = Daemon::of("metrics");
    let run = daemon.run("metrics", json!({}));
    let latency = |stats: &Value| !stats["report"]["streams"][0]["rx"]["latency_ns"].is_null();
    daemon.until(&format!("/squall/v1/runs/{run}/stats"), latency);
    let text = || {
        let (status, headers, text) = daemon.ask("GET", "/metrics", &[], b"");
        assert_eq!(
            (status, header(&headers, "content-type").map(|kind| &kind[..10])),
            (200, Some("text/plain"))
        );
        String::from_utf8(text).expect("UTF-8")
    };
    let now = text();
    for line in [
        format!("squall_port_tx_packets_total{{run=\"{run}\",port=\"A\",interface=\"\"}} "),
        format!("squall_stream_lost_packets{{run=\"{run}\",stream=\"web\"}} "),
        format!(
            "squall_stream_latency_seconds_bucket{{le=\"+Inf\",run=\"{run}\",stream=\"web\"}} "
        ),
        "squall_requests_total{status=\"201\"} 1\n".into(),
        "# TYPE squall_port_rx_bytes_total counter\n".into(),
        "squall_build_info{version=\"".into(),
        "\nprocess_resident_memory_bytes ".into(),
        "\nprocess_cpu_seconds_total ".into(),
    ] {
        assert!(now.contains(&line), "{line}\n{now}");
    }
    well_formed(&now);
    // The last values stay available for clients that scrape once a minute.
    daemon.json("POST", &format!("/squall/v1/runs/{run}/stop"), Value::Null);
    daemon.until(&format!("/squall/v1/runs/{run}"), |run| !run["ended"].is_null());
    let sent =
        daemon.get(&format!("/squall/v1/runs/{run}/report"))["streams"][0]["tx_packets"].clone();
    let after = text();
    well_formed(&after);
    let last = format!("squall_stream_tx_packets_total{{run=\"{run}\",stream=\"web\"}} {sent}\n");
    assert!(after.contains(&last) && after.contains("state=\"done\"} 1"), "{last}\n{after}");
    let (_, headers, open) =
        daemon.ask("GET", "/metrics", &[("accept", "application/openmetrics-text")], b"");
    assert!(
        header(&headers, "content-type")
            .is_some_and(|kind| kind.starts_with("application/openmetrics-text"))
    );
    assert!(open.ends_with(b"# EOF\n"));
}

const LAB: &str = "[cluster]\nray = \"10.0.0.1:6379\"\n[node.one]\naddress = \"10.0.0.11\"\n\
                   [node.two]\naddress = \"10.0.0.12\"\n[ports]\nA = [\"one/eth1\", \
                   \"two/eth1\"]\nB = \"two/eth2\"\n";

/// One line of a controller's live view.
const VIEW: &str = r#"{"t_s": 1.5, "all": {"tx_pps": 3e3, "rx_pps": 2, "tx_packets": 4500,
 "rx_packets": 4400, "lost": 7}, "nodes": [
 {"name": "one", "state": "running", "why": null, "clock_bound_ns": 120000, "tx_pps": 3e3,
 "rx_pps": 0, "tx_packets": 4500, "rx_packets": 0, "lost": 0},
 {"name": "two", "state": "lost", "why": "silent for 2 s", "clock_bound_ns": null, "tx_pps": 0,
 "rx_pps": 2.0, "tx_packets": 0, "rx_packets": 4400, "lost": 7}]}"#;

/// A daemon with the inventory `lab`, whose controller is this shell script. The functions `view`
/// and `report` print the view and write the report of a run of this daemon.
fn with_controller(name: &str, script: &str, change: impl FnOnce(&mut Controller)) -> Daemon {
    let mut settings = settings(&folder(name));
    let lab_folder = folder(&format!("{name}-lab"));
    fs::create_dir_all(&lab_folder).expect("a folder");
    let lab = lab_folder.join("lab.toml");
    fs::write(&lab, LAB).expect("a file");
    let program = lab_folder.join("controller");
    let head = format!(
        "#!/bin/sh\ncd '{}'; echo $$ >pid; echo \"$@\" >arguments; cp \"$2\" profile.toml\n\
         while [ $# -gt 0 ]; do [ \"$1\" = --json ] && json=$2; shift; done\n\
         view() {{ cat view >&2; }}\nreport() {{ cp report.json \"$json\"; }}\n",
        lab_folder.display()
    );
    fs::write(&program, head + script).expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
    fs::write(lab_folder.join("view"), VIEW.replace('\n', "") + "\n").expect("a file");
    settings.inventories.push(lab);
    settings.controller.program = program;
    change(&mut settings.controller);
    let daemon = Daemon::start(settings);
    let run = daemon.run(name, json!({ "options": { "packets": 5 } }));
    daemon.until(&format!("/squall/v1/runs/{run}"), |row| row["state"] == "done");
    let report = daemon.get(&format!("/squall/v1/runs/{run}/report"));
    fs::write(lab_folder.join("report.json"), report.to_string()).expect("a file");
    daemon
}

fn next(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        if let Message::Text(text) = socket.read().expect("a message") {
            return serde_json::from_str(&text).expect("JSON");
        }
    }
}

fn lab_folder(name: &str, file: &str) -> String {
    fs::read_to_string(folder_of(&format!("{name}-lab")).join(file)).expect(file)
}

/// Whether the controller's process exists.
fn goes_on(name: &str) -> bool {
    Path::new(&format!("/proc/{}", lab_folder(name, "pid").trim())).exists()
}

const SERVING: &str = "trap 'report; exit 130' INT\nwhile :; do view; sleep 0.05; done\n";

#[test]
fn a_run_over_nodes_has_the_rows_that_its_controller_tells_and_its_report() {
    // Mixed with lines that do not belong to the view.
    let noise = "printf 'half of \\377 a line'; echo '{\"t_s\": []}'; \
                 echo 7; head -c 3000000 /dev/zero | tr '\\0' x; echo) >&2\n";
    let daemon = with_controller("nodes", &format!("({noise}{SERVING}"), |_| {});
    let listed = daemon.get("/squall/v1/inventories");
    assert_eq!(
        listed["inventories"][0],
        json!({ "name": "lab", "nodes": ["one", "two"], "ports": [
            { "name": "A", "places": ["one/eth1", "two/eth1"] },
            { "name": "B", "places": ["two/eth2"] },
        ] })
    );
    let mut watching = daemon.watch("runs=all&every_ms=100");
    let options = json!({ "duration": "10 s", "capture": { "file": "there.pcap" } });
    let asked = json!({ "nodes": "lab", "on_loss": "continue", "options": options });
    let run = daemon.run("nowhere", asked.clone());
    let path = format!("/squall/v1/runs/{run}");
    let row = daemon.until(&path, |row| row["state"] == "running");
    let ports = json!([{ "name": "A", "address": "one/eth1, two/eth1" },
        { "name": "B", "address": "two/eth2" }]);
    assert_eq!(
        (&row["ports"], &row["duration_s"], &row["elapsed_s"]),
        (&ports, &json!(10.0), &json!(1.5))
    );
    let nodes: Value = serde_json::from_str(VIEW).expect("JSON");
    assert_eq!(
        (&row["cluster"]["nodes"][1]["why"], &row["cluster"]["all"]["lost"]),
        (&nodes["nodes"][1]["why"], &json!(7))
    );
    assert_eq!(row["cluster"]["on_loss"], "continue");
    let names_the_node = |message: &Value| message["run"]["cluster"]["nodes"][0]["name"] == "one";
    while !names_the_node(&next(&mut watching)) {}
    // The controller's input: the profile with all options, and only files of the daemon.
    let profile = lab_folder("nodes", "profile.toml");
    assert!(profile.contains("duration = \"10 s\"") && profile.contains("there.pcap"), "{profile}");
    let arguments = lab_folder("nodes", "arguments");
    let files = daemon.data.canonicalize().expect("a folder").join("files");
    assert!(arguments.contains("--on-loss continue --live json"), "{arguments}");
    assert!(arguments.contains(&format!("--for-daemon {}", files.display())), "{arguments}");
    // A second run cannot use these ports, and nothing changes.
    let mut second = json!({ "profile": PROFILE });
    second.as_object_mut().unwrap().extend(asked.as_object().unwrap().clone());
    let (status, reply) = daemon.json("POST", "/squall/v1/runs", second);
    assert_eq!((status, &reply["error"]["code"]), (409, &json!("port_in_use")), "{reply}");
    let (status, reply) = daemon.json("POST", &format!("{path}/pause"), Value::Null);
    assert_eq!((status, &reply["error"]["code"]), (409, &json!("run_over_nodes")), "{reply}");
    let (status, reply) = daemon.json("GET", &format!("{path}/hosts"), Value::Null);
    assert_eq!((status, &reply["error"]["code"]), (409, &json!("run_over_nodes")), "{reply}");
    assert!(reply.to_string().contains("try the daemon of the node"), "{reply}");
    let (_, _, text) = daemon.ask("GET", "/metrics", &[], b"");
    let text = String::from_utf8(text).expect("UTF-8");
    well_formed(&text);
    for line in [
        format!("squall_cluster_tx_packets_total{{run=\"{run}\",inventory=\"lab\"}} 4500\n"),
        format!("squall_node_rx_packets_total{{run=\"{run}\",node=\"two\"}} 4400\n"),
        format!("squall_node_tx_packets_per_second{{run=\"{run}\",node=\"one\"}} 3000.0\n"),
        format!("squall_node_up{{run=\"{run}\",node=\"one\"}} 1.0\n"),
        format!("squall_node_up{{run=\"{run}\",node=\"two\"}} 0.0\n"),
        format!("squall_node_clock_bound_seconds{{run=\"{run}\",node=\"one\"}} 0.00012\n"),
    ] {
        assert!(text.contains(&line), "{line}\n{text}");
    }
    // Two stops send one signal, because a second one would end the controller without a report.
    for _ in 0..2 {
        daemon.json("POST", &format!("{path}/stop"), Value::Null);
    }
    let row = daemon.until(&path, |row| row["ended"].is_string());
    assert_eq!((&row["state"], &row["error"]), (&json!("done"), &Value::Null), "{row}");
    assert_eq!(row["cluster"]["all"]["tx_packets"], 4500);
    assert_eq!(row["cluster"]["all"]["tx_pps"], 0.0);
    let wrote: Value = serde_json::from_str(&lab_folder("nodes", "report.json")).expect("JSON");
    assert_eq!(daemon.get(&format!("{path}/report")), wrote);
    assert_eq!(daemon.ask("GET", &format!("{path}/report.html"), &[], b"").0, 200);
    assert!(daemon.get("/squall/v1/runs")["runs"].as_array().unwrap().contains(&row));
    assert!(!goes_on("nodes"));
    // The ports are free, and the controller's directory is removed.
    let left = fs::read_dir(daemon.data.join("unfinished")).expect("a folder").count();
    assert_eq!((daemon.get("/squall/v1/leases")["leases"].clone(), left), (json!([]), 0));
}

#[test]
fn a_controller_that_dies_hangs_or_is_missing_is_a_failed_run_that_says_why() {
    let limit = Duration::from_secs(1);
    let ray = "echo 'squall: warning' >&2; echo noise >&2; \
               echo \"squall: cannot import squall.cluster\n  try pip install\" >&2; exit 3\n";
    let hangs = "view; exec sleep 1000\n";
    let ignores = "trap '' INT; while :; do view; sleep 0.05; done\n";
    let early = "trap 'exit 130' INT; while :; do view; sleep 0.05; done\n";
    for (name, script, stop, reason) in [
        ("early", early, true, "stopped before the nodes could report"),
        ("ray", ray, false, "cannot import squall.cluster\n  try pip install"),
        ("dies", "view; kill -9 $$\n", false, "the controller ended without a word: signal: 9"),
        ("hangs", hangs, false, "printed nothing for 1 s and was killed"),
        ("deaf", ignores, true, "did not report after a stop for 1 s and was killed"),
        ("half", "view; echo '{\"schema\":' >\"$json\"\n", false, "the report of the nodes: EOF"),
    ] {
        // Only the limit under test is short: a busy machine may be late with the next line.
        let daemon = with_controller(name, script, |how| {
            how.silent = if name == "hangs" { limit } else { TIMEOUT };
            how.stopping = if name == "deaf" { limit } else { TIMEOUT };
        });
        let run = daemon.run("nowhere", json!({ "nodes": "lab" }));
        let path = format!("/squall/v1/runs/{run}");
        if stop {
            daemon.until(&path, |row| row["state"] == "running");
            daemon.json("POST", &format!("{path}/stop"), Value::Null);
        }
        let row = daemon.until(&path, |row| row["ended"].is_string());
        let error = row["error"].as_str().unwrap_or_default();
        assert!(row["state"] == "failed" && error.contains(reason), "{name}: {row}");
        assert!(!error.contains("noise"), "{error}");
        assert!(!goes_on(name), "{name}");
        assert_eq!(daemon.json("GET", &format!("{path}/report"), Value::Null).0, 404);
    }
    let daemon = with_controller("missing", "", |how| how.program = "/nowhere/squall".into());
    let run = daemon.run("nowhere", json!({ "nodes": "lab" }));
    let row = daemon.until(&format!("/squall/v1/runs/{run}"), |row| row["ended"].is_string());
    assert_eq!(
        (
            &row["state"],
            row["error"].as_str().unwrap_or_default().contains("cannot run /nowhere/squall")
        ),
        (&json!("failed"), true),
        "{row}"
    );
}

#[test]
fn a_run_over_nodes_ends_with_its_lease_and_reports() {
    let daemon = with_controller("nodes-lease", SERVING, |_| {});
    let run = daemon.run("nowhere", json!({ "nodes": "lab", "ttl_s": 1.0 }));
    // Do not request the run by its id, because that would renew its lease.
    let listed = daemon.until("/squall/v1/runs?state=interrupted", |listed| {
        listed["runs"].as_array().is_some_and(|runs| !runs.is_empty())
    });
    let row = &listed["runs"][0];
    assert!(row["id"] == run && row["error"].as_str().unwrap().contains("lease"), "{row}");
    assert_eq!(daemon.get(&format!("/squall/v1/runs/{run}/report"))["streams"][0]["tx_packets"], 5);
    assert!(!goes_on("nodes-lease"));
}

#[test]
fn a_run_over_nodes_that_cannot_be_is_refused() {
    let daemon = with_controller("nodes-refused", SERVING, |_| {});
    let other = PROFILE.replace("B = ", "C = ");
    for (more, reason) in [
        (json!({ "nodes": "lap" }), "there is no inventory \"lap\"\n  try lab"),
        (json!({ "nodes": "lab", "profile": other }), "no port \"C\": it has A, B"),
        (json!({ "nodes": "lab", "lease": "l-1" }), "lease: not for a run with nodes"),
        (json!({ "nodes": "lab", "options": { "part": "1/2" } }), "part: not for a run with nodes"),
        (json!({ "nodes": "lab", "detached": true }), "a detached run needs an end"),
        (json!({ "on_loss": "continue" }), "on_loss: the run has no nodes"),
    ] {
        let mut body = json!({ "profile": PROFILE });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, reply) = daemon.json("POST", "/squall/v1/runs", body);
        let message = reply["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(reason), "{status} {reply}");
    }
    let without = Daemon::of("nodes-none");
    let body = json!({ "profile": PROFILE, "nodes": "lab" });
    let (status, reply) = without.json("POST", "/squall/v1/runs", body);
    assert!(status == 400 && reply.to_string().contains("squall serve --inventory"), "{reply}");
}

/// Checks the text with `promtool check metrics` (if installed), and always against some of its
/// rules.
fn well_formed(text: &str) {
    let mut kinds = std::collections::BTreeMap::new();
    let mut described = std::collections::BTreeSet::new();
    let mut samples = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert!(
                !help.is_empty() && described.insert(name.to_owned()),
                "{name} is described once"
            );
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a kind");
            assert!(described.contains(name), "no HELP of {name}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
            assert!(
                !["_octets", "_ms", "_ns", "_packets_seconds"].iter().any(|end| name.contains(end)),
                "{name}"
            );
            assert!(
                kinds.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{name} has two kinds"
            );
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a sample and its value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(samples.insert(sample.to_owned()), "{sample} is there twice");
            let name = sample.split('{').next().unwrap_or_default();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                name.strip_suffix(end)
                    .filter(|family| kinds.get(*family).is_some_and(|kind| kind == "histogram"))
            });
            assert!(kinds.contains_key(family.unwrap_or(name)), "{name} is of no family");
            assert!(
                family.is_some() || !sample.contains("le=\"") && !sample.contains("quantile=\""),
                "{sample}"
            );
        }
    }
    use std::process::{Command, Stdio};
    let tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut tool) = tool else {
        // Without promtool, only the rules above are checked.
        return eprintln!(
            "promtool (of Debian's prometheus) is not here, and was not asked as well"
        );
    };
    tool.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = tool.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && words.is_empty(), "{words}");
}

#[test]
fn files_stay_in_their_folder() {
    let daemon = Daemon::of("files");
    let octets = ("content-type", "application/octet-stream");
    let (status, _, row) =
        daemon.ask("PUT", "/squall/v1/files/deep/load.pcap", &[octets], b"12345");
    assert_eq!(status, 201, "{}", String::from_utf8_lossy(&row));
    let list = daemon.get("/squall/v1/files");
    assert_eq!(
        (&list["files"][0]["name"], &list["files"][0]["size"], &list["files"][0]["kind"]),
        (&json!("deep/load.pcap"), &json!(5), &json!("capture"))
    );
    assert_eq!(daemon.ask("GET", "/squall/v1/files/deep/load.pcap", &[], b"").2, b"12345");
    for name in [
        "../token",
        "%2e%2e/token",
        "deep/../../token",
        "..%2ftoken",
        "%2fetc%2fpasswd",
        "/etc/passwd",
        "%00",
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let (status, _, reply) =
                daemon.ask(method, &format!("/squall/v1/files/{name}"), &[octets], b"x");
            assert_eq!((status, code(&reply)), (400, "bad_path".into()), "{method} {name}");
        }
    }
    assert!(daemon.data.join("token").exists());
    for address in
        ["pcap:/tmp/squall-outside.pcap", "pcap:../outside.pcap", "pcap:/etc/passwd,read"]
    {
        let profile = PROFILE.replace("loop:NAME", address).replace("B = ", "# ");
        let (status, reply) = daemon.json("POST", "/squall/v1/runs", json!({ "profile": profile }));
        assert_eq!((status, &reply["error"]["code"]), (400, &json!("bad_path")), "{address}");
    }
    assert!(!Path::new("/tmp/squall-outside.pcap").exists());
    for (one, other) in [("client_certificate", "client_key"), ("client_key", "client_certificate")]
    {
        let profile = json!({ "ports": { "A": "loop:tls", "B": "loop:tls" },
            "flows": { "clients": "A", "servers": "B" },
            "template": [{ "name": "t", "clients": "16.0.0.1", "servers": "48.0.0.1", "app": "http",
                "cps": 1, "tls": { one: "/etc/passwd", other: "here.pem" } }] });
        let (status, reply) = daemon.json("POST", "/squall/v1/runs", json!({ "profile": profile }));
        assert_eq!((status, &reply["error"]["code"]), (400, &json!("bad_path")), "{one}: {reply}");
    }
    let written = json!({ "profile": PROFILE.replace("loop:NAME", "pcap:out.pcap").replace("B = ", "# "), "options": { "packets": 5 } });
    let (status, reply) = daemon.json("POST", "/squall/v1/runs", written);
    assert_eq!(status, 201, "{reply}");
    let id = reply["run"]["id"].as_str().unwrap().to_owned();
    daemon.until(&format!("/squall/v1/runs/{id}"), |run| run["state"] == "done");
    let replay = json!({ "profile": { "ports": { "A": "null:" }, "replay": [{ "files": "out.pcap", "rate": "max" }] } });
    let (status, reply) = daemon.json("POST", "/squall/v1/runs", replay);
    assert_eq!((status, &reply["run"]["kind"]), (201, &json!("replay")), "{reply}");
    let id = reply["run"]["id"].as_str().unwrap().to_owned();
    daemon.until(&format!("/squall/v1/runs/{id}"), |run| run["state"] == "done");
    assert_eq!(daemon.get(&format!("/squall/v1/runs/{id}/report"))["ports"][0]["tx"]["packets"], 5);
    assert_eq!(daemon.ask("DELETE", "/squall/v1/files/out.pcap", &[], b"").0, 204);
    assert_eq!(daemon.ask("GET", "/squall/v1/files/out.pcap", &[], b"").0, 404);
}

#[test]
fn a_capture_is_a_run_whose_file_can_be_fetched() {
    let daemon = Daemon::of("capture");
    let sent = format!(
        "packets = 5\n{}",
        PROFILE.replace("A = \"loop:NAME\"", "A = \"pcap:in.pcap\"").replace("B = ", "# ")
    );
    let (status, reply) = daemon.json("POST", "/squall/v1/runs", json!({ "profile": sent }));
    assert_eq!(status, 201, "{reply}");
    let sender = format!("/squall/v1/runs/{}", reply["run"]["id"].as_str().unwrap());
    daemon.until(&sender, |run| run["state"] == "done");
    let body = json!({ "ports": ["pcap:in.pcap,read"], "file": "c.pcapng", "packets": 3, "owner": "carol" });
    let (status, reply) = daemon.json("POST", "/squall/v1/captures", body);
    assert_eq!((status, &reply["run"]["kind"]), (201, &json!("capture")), "{reply}");
    let capture = reply["run"]["id"].as_str().unwrap().to_owned();
    let row = daemon.until(&format!("/squall/v1/runs/{capture}"), |run| run["state"] == "done");
    assert_eq!(row["error"], Value::Null);
    assert_eq!(
        daemon.get(&format!("/squall/v1/runs/{capture}/report"))["capture"]["written_packets"],
        3
    );
    let (status, _, file) = daemon.ask("GET", "/squall/v1/files/c.pcapng", &[], b"");
    assert!(status == 200 && file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]));
    let body =
        json!({ "ports": ["pcap:in.pcap,read"], "file": "d", "format": "pcap", "packets": "1" });
    let (status, reply) = daemon.json("POST", "/squall/v1/captures", body);
    assert_eq!(status, 201, "{reply}");
    let path = format!("/squall/v1/runs/{}", reply["run"]["id"].as_str().unwrap());
    daemon.until(&path, |run| run["state"] == "done");
    let (_, _, file) = daemon.ask("GET", "/squall/v1/files/d", &[], b"");
    assert!(file.starts_with(&[0x4d, 0x3c, 0xb2, 0xa1]), "a pcap with nanoseconds");
    // An endless source stops when its duration has elapsed.
    let body = json!({ "ports": ["loop:heard"], "duration_s": 0.2 });
    let (status, reply) = daemon.json("POST", "/squall/v1/captures", body);
    assert_eq!((status, &reply["run"]["duration_s"]), (201, &json!(0.2)), "{reply}");
    let path = format!("/squall/v1/runs/{}", reply["run"]["id"].as_str().unwrap());
    let row = daemon.until(&path, |run| run["state"] == "done");
    assert_eq!(row["verdict"]["ended_by"], "duration", "{row}");
}

#[test]
fn received_flows_are_reported_by_conversation_and_host_without_a_file() {
    let daemon = Daemon::of("conversations");
    let sent = format!(
        "packets = 5\n{}",
        PROFILE.replace("A = \"loop:NAME\"", "A = \"pcap:in.pcap\"").replace("B = ", "# ")
    );
    let (status, reply) = daemon.json("POST", "/squall/v1/runs", json!({ "profile": sent }));
    assert_eq!(status, 201, "{reply}");
    let sender = format!("/squall/v1/runs/{}", reply["run"]["id"].as_str().unwrap());
    daemon.until(&sender, |run| run["state"] == "done");
    let listen = |more: Value| {
        let mut body = json!({ "ports": ["pcap:in.pcap,read"], "received_flows": true });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        daemon.json("POST", "/squall/v1/captures", body)
    };
    let (status, reply) = listen(json!({ "write": false, "snaplen": 60 }));
    assert_eq!(status, 400, "{reply}");
    let files = daemon.get("/squall/v1/files")["files"].as_array().unwrap().len();
    let (status, reply) = listen(json!({ "write": false }));
    assert_eq!(status, 201, "{reply}");
    let run = format!("/squall/v1/runs/{}", reply["run"]["id"].as_str().unwrap());
    daemon.until(&run, |run| run["state"] == "done");
    assert_eq!(daemon.get("/squall/v1/files")["files"].as_array().unwrap().len(), files);

    let report = daemon.get(&format!("{run}/report"));
    let flow = &report["received_flows"]["flows"][0];
    let page = daemon.get(&format!("{run}/conversations?filter=udp"));
    let row = &page["rows"][0];
    assert_eq!(
        (&page["total"], &page["packets"], &row["packets_ab"]),
        (&json!(1), &json!(5), &json!(5))
    );
    assert_eq!(
        (&row["a"], &row["b"], &row["octets"]),
        (&flow["src"], &flow["dst"], &flow["octets"])
    );
    let hosts = daemon.get(&format!("{run}/endpoints?sort=tx_packets&limit=1"));
    assert_eq!((&hosts["rows"][0]["address"], &hosts["total"]), (&flow["src"], &json!(2)));
    assert_eq!(hosts["rows"].as_array().unwrap().len(), 1);

    let code = |path: &str| {
        let (status, reply) = daemon.json("GET", path, Value::Null);
        (status, reply["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(code(&format!("{run}/endpoints?filter=port+x")), (400, "bad_filter".into()));
    assert_eq!(code(&format!("{sender}/conversations")), (404, "no_received_flows".into()));
    // The run's flows are still cached in memory, and must be deleted together with it.
    assert_eq!(daemon.json("DELETE", &run, Value::Null).0, 204);
    assert_eq!(code(&format!("{run}/conversations")).0, 404);
}

#[test]
fn hosts_of_a_live_run_are_found_by_page_filter_and_number() {
    let daemon = Daemon::of("hosts");
    let profile = "[ports]\nA = \"loop:hosts\"\nB = \"loop:hosts\"\n[[host]]\nname = \
                   \"subscribers\"\nport = \"A\"\ncount = 30\nsetup = \"1000/s\"\n[[host]]\nname = \
                   \"server\"\nport = \"B\"\nipv4 = \"10.0.0.1/16\"\ngateway = \"10.0.0.1\"\nserve = \
                   \"10.0.1.0-10.0.1.255\"\nlease = \"1 h\"\n";
    let profile = format!("duration = \"1 h\"\n{profile}");
    let (status, reply) = daemon.json("POST", "/squall/v1/runs", json!({ "profile": profile }));
    assert_eq!(status, 201, "{reply}");
    let run = format!("/squall/v1/runs/{}", reply["run"]["id"].as_str().unwrap());

    let mut socket = daemon.watch("every_ms=100");
    let bound = format!("{run}/hosts?filter=state%3Dbound+group%3Dsubscribers&offset=28&limit=10");
    let page = daemon.until(&bound, |page| page["matching"] == 30);
    assert_eq!(page["total"], 31);
    let rows = page["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["number"], &rows[1]["number"]), (2, &json!(29), &json!(30)));
    let host = &rows[1];
    assert_eq!((&host["port"], &host["ipv4"]["gateway"]), (&json!("A"), &json!("10.0.0.1")));
    let lease = &host["ipv4"]["lease"];
    let time = |name: &str| lease[name].as_f64().unwrap();
    assert!((1799.0..1801.0).contains(&(time("end_s") - time("renew_s"))), "{lease}");

    let address = host["ipv4"]["address"].as_str().unwrap().split('/').next().unwrap();
    let found = daemon.get(&format!("{run}/hosts?filter=address%3D{address}"));
    assert_eq!((&found["matching"], &found["rows"][0]), (&json!(1), host));
    let plain = daemon.get(&format!("{run}/hosts?offset=30"));
    assert_eq!((&plain["matching"], &plain["rows"][0]["group"]), (&json!(31), &json!("server")));

    let detail = daemon.get(&format!("{run}/hosts/30?group=subscribers"));
    let events: Vec<_> = detail["events"].as_array().unwrap().iter().collect();
    let words: Vec<_> = events.iter().map(|event| event["what"].as_str().unwrap()).collect();
    let first = ["selecting", "discover", "offer", "requesting", "request", "ack"];
    assert_eq!(words[..6], first, "{detail}");
    let bound = events.last().unwrap();
    assert_eq!((&bound["what"], &bound["address"]), (&json!("bound"), &json!(address)));
    assert_eq!(detail["log_full"], false);

    // Watchers get the hosts by state.
    let states = loop {
        let message = socket.read().expect("a message");
        let message: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
        if message["type"] == "sample" && message["hosts"][0][3]["bound"] == 30 {
            break message["hosts"].clone();
        }
    };
    assert_eq!(states[0], json!(["subscribers", 30, 30, { "bound": 30 }, false]));

    let code = |path: &str| {
        let (status, reply) = daemon.json("GET", path, Value::Null);
        (status, reply["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(code(&format!("{run}/hosts?filter=colour%3Dred")), (400, "bad_filter".into()));
    for limit in [0, 10_001] {
        assert_eq!(code(&format!("{run}/hosts?limit={limit}")), (400, "bad_query".into()));
    }
    // The run has two groups.
    for path in ["hosts/1", "hosts/31?group=subscribers", "hosts/1?group=others"] {
        assert_eq!(code(&format!("{run}/{path}")), (404, "not_found".into()), "{path}");
    }
    assert_eq!(daemon.json("POST", &format!("{run}/stop"), json!({})).0, 200);
    daemon.until(&run, |run| run["state"] == "done");
    assert_eq!(code(&format!("{run}/hosts")), (409, "run_over".into()));
}

#[test]
fn a_run_of_hosts_alone_is_of_that_kind_and_cannot_pause() {
    let daemon = Daemon::of("only-hosts");
    let profile = "duration = \"1 h\"\n[ports]\nA = \"loop:only-hosts\"\n[[host]]\nport = \
                   \"A\"\n";
    let body = json!({ "profile": profile, "pause_s": 5 });
    let (status, reply) = daemon.json("POST", "/squall/v1/runs", body);
    let refused = reply.to_string().contains("hosts and routers cannot be paused while");
    assert!(status == 400 && refused, "{reply}");
    let (status, reply) = daemon.json("POST", "/squall/v1/runs", json!({ "profile": profile }));
    assert_eq!((status, &reply["run"]["kind"]), (201, &json!("hosts")), "{reply}");
    let run = format!("/squall/v1/runs/{}", reply["run"]["id"].as_str().unwrap());
    let (status, reply) = daemon.json("POST", &format!("{run}/pause"), json!({}));
    assert_eq!((status, &reply["error"]["code"]), (400, &json!("bad_request")), "{reply}");
    assert_eq!(daemon.get(&run)["state"], "running");
    assert_eq!(daemon.json("POST", &format!("{run}/stop"), json!({})).0, 200);
    daemon.until(&run, |run| run["state"] == "done");
}

#[test]
fn an_order_for_a_router_that_a_run_does_not_have_is_refused() {
    let daemon = Daemon::of("orders");
    let run = format!("/squall/v1/runs/{}", daemon.run("orders", json!({})));
    daemon.until(&run, |run| run["state"] == "running");
    let refused = |order: Value| {
        let (status, reply) = daemon.json("POST", &format!("{run}/routers"), order);
        assert!((400..500).contains(&status), "{reply}");
        reply["error"]["message"].as_str().unwrap_or_default().to_owned()
    };
    let unknown = refused(json!({ "router": "r1", "action": "withdraw", "duration": 1.5 }));
    assert!(unknown.contains("there is no router \"r1\""), "{unknown}");
    let action = refused(json!({ "router": "r1", "action": "drop" }));
    assert!(action.contains("is not an action of a router"), "{action}");
    let count = refused(json!({ "router": "r1", "action": "up", "count": 1 }));
    assert!(count.contains("count has no effect with action = \"up\""), "{count}");
    assert_ne!(refused(json!({ "router": "r1", "action": "up", "at": "1 s" })), "");
    assert_eq!(daemon.json("POST", &format!("{run}/stop"), json!({})).0, 200);
    // A run that is stopped before its first frame fails.
    daemon.until(&run, |run| run["state"] == "done" || run["state"] == "failed");
}

#[test]
fn a_node_has_pages_of_its_own_hosts() {
    let daemon = Daemon::of("own-hosts");
    // Without addresses, hosts have no other state than that they have started.
    let profile = "duration = \"1 h\"\n[ports]\nA = \"elsewhere:other\"\nB = \
                   \"loop:own-hosts\"\n[[host]]\nname = \"there\"\nport = \"A\"\ncount = \
                   3\n[[host]]\nname = \"here\"\nport = \"B\"\ncount = 2\nipv4 = \
                   \"none\"\nlldp = \"30 s\"\n";
    let (status, reply) = daemon.json("POST", "/squall/v1/runs", json!({ "profile": profile }));
    assert_eq!(status, 201, "{reply}");
    let run = format!("/squall/v1/runs/{}", reply["run"]["id"].as_str().unwrap());
    let started = format!("{run}/hosts?filter=state%3Dstarted");
    daemon.until(&started, |page| page["matching"] == 2);
    let page = daemon.get(&format!("{run}/hosts?limit=2"));
    assert_eq!((&page["total"], &page["matching"]), (&json!(2), &json!(2)), "{page}");
    let rows = page["rows"].as_array().unwrap();
    let row = |row: &Value| (row["group"].clone(), row["number"].clone(), row["state"].clone());
    let expected = [1, 2].map(|number| (json!("here"), json!(number), json!("started")));
    assert_eq!(rows.iter().map(row).collect::<Vec<_>>(), expected);
}

#[test]
fn each_documented_route_exists() {
    let daemon = Daemon::of("openapi");
    let document = daemon.get("/squall/v1/openapi.json");
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() > 25);
    for (path, methods) in paths {
        for method in methods.as_object().expect("methods").keys() {
            let asked = path
                .replace("{id}", "none")
                .replace("{name}", "none")
                .replace("{file}", "none")
                .replace("{n}", "1");
            let (status, _, reply) = daemon.ask(&method.to_uppercase(), &asked, &[], b"");
            let text = String::from_utf8_lossy(&reply);
            assert!(
                status != 405 && !text.contains(&format!("there is no {asked}")),
                "{method} {path}: {status} {text}"
            );
            assert!(status < 500, "{method} {path}: {status} {text}");
        }
    }
}

#[test]
fn the_certificate_is_made_once_and_good_for_localhost() {
    let mut daemon = Daemon::start(Settings { plain: false, ..settings(&folder("tls")) });
    let certificate = fs::read(daemon.data.join("cert.pem")).expect("it was made");
    assert_eq!(
        fs::metadata(daemon.data.join("key.pem")).expect("a key").permissions().mode() & 0o777,
        0o600
    );
    let info = |daemon: &Daemon| {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(&certificate).expect("PEM"))
            .expect("a certificate");
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions");
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let session = rustls::ClientConnection::new(config.into(), name).expect("a session");
        let socket = TcpStream::connect(daemon.bound.https).expect("it listens");
        let mut stream = rustls::StreamOwned::new(session, socket);
        talk(&mut stream, daemon.bound.https, "GET", "/squall/v1/info", &[], b"").0
    };
    assert_eq!(info(&daemon), 200);
    daemon.stop();
    let again = Daemon::start(Settings { plain: false, ..settings(&daemon.data) });
    assert_eq!(info(&again), 200, "the same certificate");
}
