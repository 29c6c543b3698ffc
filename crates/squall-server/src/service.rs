//! What all requests share.

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
    /// Captures that were looked at.
    pub captures: squall_editor::Captures,
    /// Flows of the run in the history that was looked at last, and its id: a report of a million
    /// flows takes seconds to read, and whoever sorts them asks again and again.
    pub flows: Mutex<Option<(String, Arc<squall_report::conversations::Flows>)>>,
    /// Rules that are solved, or were.
    #[cfg_attr(not(feature = "attacks"), expect(dead_code))]
    pub solving: design::Solving,
    /// Where it listens; set before the first request.
    pub bound: OnceLock<(SocketAddr, Option<SocketAddr>)>,
    /// `true` when the daemon ends.
    pub ending: Sender<bool>,
    /// Turns of those who have profiles checked or planned.
    pub planning: Arc<Semaphore>,
    /// Of those who watch.
    pub watchers: Arc<Semaphore>,
    /// Who was refused lately.
    pub refused: Refused,
    /// Why leases are over, the latest last: told to whoever held them.
    pub ended: Mutex<VecDeque<(String, String)>>,
    pub memory: Arc<Memory>,
    /// When it is looked whether the certificate ends.
    pub certificate_due: Mutex<Instant>,
    /// Held, so that no other daemon has the same folder.
    _lock: File,
}

impl Service {
    /// Makes the data folder, and reads what is kept there. What is started for it later gives way
    /// as little as the thread that calls this.
    ///
    /// # Errors
    /// A folder or a file that cannot be used; another daemon in the same folder.
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
        // Profiles, reports and captures are nobody else's affair.
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
        // A mistake in one is told now, and not to the first user.
        Inventory::load_all(&settings.inventories)?;
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
