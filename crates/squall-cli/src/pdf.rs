//! A page as PDF, printed by a browser of this machine: plots are drawn by the page's scripts, which
//! converters without a browser do not run.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use squall::Error;
use squall_port_linux::{lab, shared};
use squall_units::Cannot;

use crate::output;

/// Browsers that print without a display, by the name of their command.
const BROWSERS: [&str; 6] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "brave-browser",
];
/// A page of a million points takes seconds; a browser that hangs must not hold the result.
const LONGEST: Duration = Duration::from_secs(120);

/// A PDF to write.
pub struct Pdf {
    path: PathBuf,
    browser: PathBuf,
}

impl Pdf {
    /// Finds the browser and creates the file, so that neither is missed after the measurement.
    ///
    /// # Errors
    /// If there is no browser, or if the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let browser =
            BROWSERS.iter().find_map(|name| lab::find_program(name)).ok_or_else(|| {
                let cannot = Cannot::new(
                    format!("write {}", path.display()),
                    "there is no browser that prints pages",
                );
                let hint = "apt install chromium, or Google Chrome, Edge or Brave; or --report \
                        FILE.html, and print that where there is a browser";
                Error::Environment(cannot.with_hint(hint).to_string())
            })?;
        output::create(&path.to_string_lossy())?;
        Ok(Self { path: path.to_owned(), browser })
    }

    /// Prints the page.
    ///
    /// # Errors
    /// If the browser does not make a PDF of it.
    pub fn write(&self, html: &str) -> Result<(), Error> {
        let temporary = std::env::temp_dir();
        let folder = shared::own_folder(&temporary, "squall-pdf")
            .map_err(|error| Cannot::write(&temporary, &error))?;
        let done = self.print(&folder, html);
        _ = fs::remove_dir_all(&folder);
        done
    }

    fn print(&self, folder: &Path, html: &str) -> Result<(), Error> {
        let page = folder.join("page.html");
        fs::write(&page, html).map_err(|error| Cannot::write(&page, &error))?;
        let printed = folder.join("page.pdf");
        let mut command = Command::new(&self.browser);
        command.args(["--headless", "--disable-gpu", "--no-pdf-header-footer"]);
        if fs::metadata("/proc/self").is_ok_and(|of| of.uid() == 0) {
            // Chromium's sandbox refuses to start as root.
            command.arg("--no-sandbox");
        }
        // A profile of its own: one that is in use by an open browser would be locked.
        command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
        command.arg(format!("--print-to-pdf={}", printed.display()));
        command.arg(format!("file://{}", page.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let cannot = |why: String| {
            let what = format!("write {} by {}", self.path.display(), self.browser.display());
            Error::Environment(Cannot::new(what, why).to_string())
        };
        let mut browser = command.spawn().map_err(|error| cannot(error.to_string()))?;
        let end = Instant::now() + LONGEST;
        let status = loop {
            match browser.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(50)),
                Ok(None) => {
                    _ = browser.kill();
                    _ = browser.wait();
                    return Err(cannot(format!("it took more than {} s", LONGEST.as_secs())));
                }
                Err(error) => return Err(cannot(error.to_string())),
            }
        };
        let octets = fs::read(&printed).unwrap_or_default();
        if !octets.starts_with(b"%PDF") {
            return Err(cannot(format!("it made no PDF ({status})")));
        }
        fs::write(&self.path, octets).map_err(|error| Cannot::write(&self.path, &error))?;
        Ok(())
    }
}
