//! State shared by all requests.

use std::{
    collections::VecDeque,
    fs::{self, File, TryLockError},
    net::SocketAddr,
    os::unix::fs::{MetadataExt, PermissionsExt},
    sync::{Arc, Mutex, OnceLock},
    time::{Instant, SystemTime},
};

use squall::Error;
use squall_units::Cannot;
use tokio::sync::{Semaphore, watch::Sender};

use crate::{
    Settings, audit::Refused, auth::Auth, budget, design, files::Files, history::History,
    inventory::Inventory, leases::Leases, log::RequestLog, memory::Memory, otg, ports::Ports,
    runs::Runs, threads::Acting, watch,
};

pub struct Service {
    pub settings: Settings,
    pub started: SystemTime,
    pub since: Instant,
    pub auth: Auth,
    pub ports: Ports,
    pub leases: Mutex<Leases>,
    pub runs: Runs,
    pub history: History,
    pub files: Files,
    pub log: RequestLog,
    pub otg: otg::Sessions,
    pub acting: Acting,
    /// Captures that are open for viewing.
    pub captures: squall_editor::Captures,
    /// Flows of the run of the history that was viewed last, with its id. Kept, because reading a
    /// report with a million flows takes seconds, and each change of the sort order is a new
    /// request.
    pub flows: Mutex<Option<(String, Arc<squall_report::conversations::Flows>)>>,
    /// Jobs that solve rules.
    #[cfg_attr(not(feature = "attacks"), expect(dead_code))]
    pub solving: design::Solving,
    /// Addresses of the listeners; set before the first request.
    pub bound: OnceLock<(SocketAddr, Option<SocketAddr>)>,
    /// `true` when the daemon ends.
    pub ending: Sender<bool>,
    /// Permits to check or plan profiles.
    pub planning: Arc<Semaphore>,
    /// Permits for WebSockets of watchers.
    pub watchers: Arc<Semaphore>,
    /// Recently refused clients.
    pub refused: Refused,
    /// Reasons why leases ended, the latest last; shown to their former holders.
    pub ended: Mutex<VecDeque<(String, String)>>,
    pub memory: Arc<Memory>,
    /// When to check the certificate again.
    pub certificate_due: Mutex<Instant>,
    /// Lock that keeps other daemons from using the same data directory.
    _lock: File,
}

impl Service {
    /// Creates the data directory and loads its contents. Must not be called from a serving thread,
    /// because threads that generate traffic inherit the caller's priority.
    ///
    /// # Errors
    /// If a directory or a file cannot be used, or another daemon uses the same directory.
    pub fn open(settings: Settings) -> Result<Self, Error> {
        let data = &settings.data;
        let wrong = |error: std::io::Error| {
            let cannot = Cannot::of_io(format!("use the folder {}", data.display()), &error);
            Error::Environment(cannot.to_string())
        };
        fs::create_dir_all(data).map_err(wrong)?;
        let about = fs::metadata(data).map_err(wrong)?;
        if about.uid() != rustix::process::geteuid().as_raw() {
            return Err(Error::Environment(format!(
                "{}: this folder belongs to user {}, who could change its contents\n  try another \
                 --data FOLDER",
                data.display(),
                about.uid()
            )));
        }
        // Accessible to this user only, because other users must not read profiles, reports and
        // captures.
        fs::set_permissions(data, fs::Permissions::from_mode(0o700)).map_err(wrong)?;
        let lock = File::create(data.join("lock")).map_err(wrong)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Environment(format!(
                    "{}: another daemon uses this folder\n  try to stop it, or another --data \
                     FOLDER",
                    data.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(wrong(error)),
        }
        // An invalid inventory is reported at the start rather than to the first user.
        Inventory::load_all(&settings.inventories)?;
        // Remove recordings of killed processes, which would otherwise fill the disk.
        squall_control::recordings::sweep();
        let acting = Acting::new()?;
        Ok(Self {
            started: SystemTime::now(),
            since: Instant::now(),
            auth: Auth::open(&settings)?,
            ports: Ports::new(settings.allowed()),
            leases: Mutex::default(),
            runs: Runs::default(),
            history: History::open(&data.join("history.sqlite"))?,
            files: Files::open(data)?,
            log: RequestLog::default(),
            otg: otg::Sessions::new(acting.clone()),
            acting,
            captures: squall_editor::Captures::default(),
            flows: Mutex::default(),
            solving: Default::default(),
            bound: OnceLock::new(),
            ending: Sender::new(false),
            planning: Arc::new(Semaphore::new(budget::PLANNING)),
            watchers: watch::places(),
            refused: Refused::default(),
            ended: Mutex::default(),
            memory: Arc::default(),
            certificate_due: Mutex::new(Instant::now()),
            settings,
            _lock: lock,
        })
    }
}
