//! A process that takes over from a running one: it asks for the embedded store first, and for the
//! listening sockets once it has read that.
//!
//! The other side of it is in [`signals`](crate::signals).

use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use pingora_core::server::Server;
use pingora_core::server::configuration::{Opt, ServerConf};

use crate::settings::Settings;
use crate::signals::store_sock;

/// Says that this process waits for the store, until it is dropped.
pub(crate) struct Asking {
    path: PathBuf,
    _listener: UnixListener,
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Without a listener it says nothing; it is only tidier.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Asks the running process to let go of the store.
///
/// # Errors
/// When the socket that says so cannot be made.
pub(crate) fn ask_for_store(settings: &Settings) -> anyhow::Result<Asking> {
    make_sock_folder(settings)?;
    let path = store_sock(&settings.lockgate.upgrade_sock);
    // What a process that was killed left there.
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)
        .map_err(|e| anyhow::anyhow!("{} cannot be listened on: {e}", path.display()))?;
    Ok(Asking {
        path,
        _listener: listener,
    })
}

fn make_sock_folder(settings: &Settings) -> anyhow::Result<()> {
    let Some(folder) = settings.lockgate.upgrade_sock.parent() else {
        return Ok(());
    };
    std::fs::create_dir_all(folder).map_err(|e| {
        anyhow::anyhow!(
            "the folder {} for the hand-over socket cannot be made: {e}",
            folder.display()
        )
    })
}

/// Pingora's server, with the sockets of the running process if it is to be replaced.
///
/// # Errors
/// When nobody hands sockets over.
pub(crate) fn start_server(
    settings: &Settings,
    conf: ServerConf,
    upgrade: bool,
) -> anyhow::Result<Server> {
    let opt = Opt {
        upgrade,
        ..Opt::default()
    };
    let mut server = Server::new_with_opt_and_conf(opt, conf);
    if upgrade {
        tracing::info!(
            upgrade_sock = %settings.lockgate.upgrade_sock.display(),
            "waiting for the running process to hand over its sockets (send it SIGQUIT)"
        );
    }
    make_sock_folder(settings)?;
    // Pingora panics when nobody hands sockets over.
    let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.bootstrap()));
    if taken.is_err() {
        anyhow::bail!(
            "no running process handed over its sockets; without one, start without --upgrade"
        );
    }
    Ok(server)
}
