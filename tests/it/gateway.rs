//! The gateway as a child process: started on free ports, edited through its files, ended by its id.
//!
//! ```ignore
//! let mut gateway = Gateway::start(Setup { ports, dir, config, resources }).await?;
//! gateway.edit(&document).await?;      // returns when the new configuration is live
//! let status = gateway.stop().await?;  // SIGTERM, and the exit status
//! ```

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::client::{Answer, Connection, Message, Target};
use crate::ports::Ports;
use crate::step::ADMIN_KEY;
use crate::value::merge;

/// A debug build with hundreds of routes is ready well within this.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// An edit is seen within a second; more means it was lost.
const EDIT_DEADLINE: Duration = Duration::from_secs(10);
/// A gateway without requests ends at once; one that drains gets this long.
const STOP_DEADLINE: Duration = Duration::from_secs(15);
/// Between two looks at something that will happen soon.
pub(crate) const POLL: Duration = Duration::from_millis(10);
/// Lines of the gateway's log that are kept.
const LOG_LINES: usize = 2_000;
/// Fields of the access log, one JSON object per line.
const ACCESS_LOG: &str = concat!(
    r#"{"mark":"$http_x_case","status":"$status","request":"$request","uri":"$uri","args":"$args","#,
    r#""host":"$host","remote_addr":"$remote_addr","upstream_addr":"$upstream_addr","#,
    r#""upstream_status":"$upstream_status","upstream_uri":"$upstream_uri","#,
    r#""upstream_host":"$upstream_host","body_bytes_sent":"$body_bytes_sent","#,
    r#""request_length":"$request_length","user_agent":"$http_user_agent","request_id":"$request_id"}"#
);

/// What a start needs.
pub(crate) struct Setup<'a> {
    /// Where the ports come from.
    pub(crate) ports: &'a Ports,
    /// A folder of its own, made if missing.
    pub(crate) dir: PathBuf,
    /// Merged over the runner's config.yaml.
    pub(crate) config: Value,
    /// The first apisix.yaml.
    pub(crate) resources: Value,
}

/// The ports of one gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listeners {
    pub(crate) http: u16,
    pub(crate) https: u16,
    status: u16,
    prometheus: u16,
    control: u16,
    admin: u16,
}

/// A running gateway. Killed when dropped.
pub(crate) struct Gateway {
    child: Child,
    /// Its folder, with config.yaml, apisix.yaml and access.log.
    pub(crate) dir: PathBuf,
    /// Its ports.
    pub(crate) listeners: Listeners,
    /// Whether apisix.yaml is its source.
    pub(crate) file_driven: bool,
    log: Log,
}

/// The last lines of standard error.
pub(crate) type Log = Arc<Mutex<VecDeque<String>>>;

impl Gateway {
    /// Starts and waits until it accepts requests.
    pub(crate) async fn start(setup: Setup<'_>) -> Result<Self> {
        std::fs::create_dir_all(&setup.dir)?;
        let listeners = Listeners {
            http: setup.ports.take()?,
            https: setup.ports.take()?,
            status: setup.ports.take()?,
            prometheus: setup.ports.take()?,
            control: setup.ports.take()?,
            admin: setup.ports.take()?,
        };
        let mut config = base_config(&setup.dir, listeners);
        merge(&mut config, &setup.config);
        let deployment = config.get("deployment");
        let role = deployment
            .and_then(|d| d.get("role"))
            .and_then(Value::as_str);
        let file_driven = role == Some("data_plane");
        if !file_driven {
            let admin = json!({ "deployment": { "admin": {
                "admin_listen": { "ip": "127.0.0.1", "port": listeners.admin },
                "admin_key": [{ "name": "it", "key": ADMIN_KEY, "role": "admin" }] } } });
            let mut with_admin = admin;
            merge(&mut with_admin, &config);
            config = with_admin;
        }
        std::fs::write(
            setup.dir.join("config.yaml"),
            serde_yaml::to_string(&config)?,
        )?;
        if file_driven {
            write_document(&setup.dir, &setup.resources)?;
        }
        let (child, log) = spawn(&setup.dir, &[])?;
        let mut gateway = Gateway {
            child,
            dir: setup.dir,
            listeners,
            file_driven,
            log,
        };
        gateway.wait_ready().await?;
        Ok(gateway)
    }

    /// Starts a second process on the same configuration, as an upgrade does. The caller owns both.
    pub(crate) fn successor(&self, args: &[&str]) -> Result<Gateway> {
        let (child, log) = spawn(&self.dir, args)?;
        Ok(Gateway {
            child,
            dir: self.dir.clone(),
            listeners: self.listeners,
            file_driven: self.file_driven,
            log,
        })
    }

    /// Waits for 200 from `/status/ready`.
    pub(crate) async fn wait_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "the gateway ended with {status} at start\n{}",
                    self.last_lines(30)
                );
            }
            if self.get("status", "/status/ready").await.status == Some(200) {
                return Ok(());
            }
            ensure!(
                start.elapsed() < START_DEADLINE,
                "not ready within {START_DEADLINE:?}\n{}",
                self.last_lines(30)
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// Address of a listener by the names that cases use.
    pub(crate) fn address(&self, listener: &str) -> Result<SocketAddr> {
        let port = match listener {
            "http" => self.listeners.http,
            "https" => self.listeners.https,
            "status" => self.listeners.status,
            "prometheus" => self.listeners.prometheus,
            "control" => self.listeners.control,
            "admin" => self.listeners.admin,
            other => bail!("no listener {other}"),
        };
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// A plain GET on one of the listeners.
    pub(crate) async fn get(&self, listener: &str, path: &str) -> Answer {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        self.exchange(listener, "GET", head, Vec::new()).await
    }

    /// A request to the Admin API, with its key. The path is below `/apisix/admin`.
    pub(crate) async fn admin(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.below("/apisix/admin", method, path, body).await
    }

    /// The same below `/lockgate/v1`.
    pub(crate) async fn own(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.below("/lockgate/v1", method, path, body).await
    }

    async fn below(&self, prefix: &str, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let head = format!(
            "{method} {prefix}{path} HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: {ADMIN_KEY}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        self.exchange("admin", method, head, body).await
    }

    async fn exchange(&self, listener: &str, method: &str, head: String, body: Vec<u8>) -> Answer {
        let run = async {
            let target = Target {
                address: self.address(listener)?,
                bind: None,
                tls: None,
            };
            let message = Message {
                method: method.into(),
                head: head.into_bytes(),
                body,
                ..Message::default()
            };
            Ok(Connection::open(&target).await?.exchange(&message).await)
        };
        run.await.unwrap_or_else(|error| Answer::failed(&error))
    }

    /// The page that tells which configuration is live.
    pub(crate) async fn configuration(&self) -> Result<Value> {
        let answer = self.get("status", "/status/config").await;
        ensure!(
            answer.status == Some(200),
            "/status/config: {:?} {:?}",
            answer.status,
            answer.error
        );
        serde_json::from_slice(&answer.body).context("/status/config is not JSON")
    }

    /// The number that grows with each change of the live configuration.
    pub(crate) async fn revision(&self) -> Result<u64> {
        let page = self.configuration().await?;
        page.get("revision")
            .and_then(Value::as_u64)
            .context("no revision in /status/config")
    }

    /// Replaces apisix.yaml at once and waits until it is live. `document` must differ from the last.
    pub(crate) async fn edit(&self, document: &Value) -> Result<()> {
        ensure!(self.file_driven, "this gateway is not driven by a file");
        let before = self.revision().await?;
        write_document(&self.dir, document)?;
        self.wait_revision_above(before).await
    }

    /// Waits until a newer configuration than `before` is live.
    pub(crate) async fn wait_revision_above(&self, before: u64) -> Result<()> {
        let start = Instant::now();
        while self.revision().await? <= before {
            ensure!(
                start.elapsed() < EDIT_DEADLINE,
                "edit not live within {EDIT_DEADLINE:?}"
            );
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        kill(pid, signal).with_context(|| format!("cannot send {signal}"))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(
                start.elapsed() < deadline,
                "still running after {deadline:?}"
            );
            tokio::time::sleep(POLL).await;
        }
    }

    /// SIGTERM, and the exit status.
    pub(crate) async fn stop(mut self) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.ended(STOP_DEADLINE).await
    }

    /// Log lines that contain a text.
    pub(crate) fn lines_with(&self, wanted: &str) -> Vec<String> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.iter()
            .filter(|line| line.contains(wanted))
            .cloned()
            .collect()
    }

    /// The last log lines.
    pub(crate) fn last_lines(&self, n: usize) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = log.len().saturating_sub(n);
        log.iter()
            .skip(skip)
            .map(|l| format!("    {l}"))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The access log as text; empty when there is none yet.
    pub(crate) fn access_log(&self) -> String {
        std::fs::read_to_string(self.dir.join("access.log")).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Already ended is fine; the wait leaves no zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The binary under test; another build can be named, for instance the one that is shipped.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("LOCKGATE_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_lockgate")),
        PathBuf::from,
    )
}

/// Writes apisix.yaml next to its place, then renames: a reader sees the old or the new file.
pub(crate) fn write_document(dir: &Path, document: &Value) -> Result<()> {
    let text = format!("{}#END\n", serde_yaml::to_string(document)?);
    let temporary = dir.join(".apisix.yaml.new");
    std::fs::write(&temporary, text)?;
    std::fs::rename(temporary, dir.join("apisix.yaml")).context("apisix.yaml")
}

fn spawn(dir: &Path, args: &[&str]) -> Result<(Child, Log)> {
    let mut child = Command::new(binary())
        .arg("run")
        .arg("-c")
        .arg(dir.join("config.yaml"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the gateway")?;
    let stderr = child.stderr.take().context("no standard error")?;
    let log = Log::default();
    let lines = Arc::clone(&log);
    // Ends when the child's standard error ends.
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() >= LOG_LINES {
                lines.pop_front();
            }
            lines.push_back(line);
        }
    });
    Ok((child, log))
}

fn base_config(dir: &Path, ports: Listeners) -> Value {
    let listen = |port: u16| json!({ "ip": "127.0.0.1", "port": port });
    json!({
        "deployment": { "role": "data_plane", "role_data_plane": { "config_provider": "yaml" } },
        "apisix": {
            "node_listen": [listen(ports.http)],
            "ssl": { "enable": true, "listen": [listen(ports.https)] },
            "status": listen(ports.status),
            "enable_control": true,
            "control": listen(ports.control),
        },
        "plugin_attr": { "prometheus": { "export_addr": listen(ports.prometheus) } },
        "nginx_config": {
            "error_log": "stderr",
            "error_log_level": "info",
            "worker_processes": 2,
            "http": {
                "access_log": dir.join("access.log"),
                "access_log_format": ACCESS_LOG,
                "access_log_format_escape": "json",
            },
        },
    })
}
