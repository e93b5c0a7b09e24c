//! `nginx_config`: workers, logs, limits towards clients.

use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::Value;

use super::read::Reader;
use super::{AccessLogSettings, Client, ErrorLog, Home, RealIp, UpstreamKeepalive, cgroup};
use crate::observe::access_log::Escape;

/// The access log format of APISIX.
pub(super) const LOG_FORMAT: &str = "$remote_addr - $remote_user [$time_local] $http_host \"$request\" $status $body_bytes_sent $request_time \"$http_referer\" \"$http_user_agent\" $upstream_addr $upstream_status $upstream_response_time \"$upstream_scheme://$upstream_host$upstream_uri\" \"$apisix_request_id\"";

/// More threads than any machine has cores.
const MAX_WORKERS: u64 = 1024;

/// Worker threads: `APISIX_WORKER_PROCESSES`, else the setting, else cores and quota.
pub(super) fn workers(read: &mut Reader<'_>, env: &dyn Fn(&str) -> Option<String>) -> usize {
    if read.flag("apisix.enable_dev_mode", false) {
        return 1;
    }
    let path = "nginx_config.worker_processes";
    let auto = || cgroup::workers(Path::new("/sys/fs/cgroup"));
    if let Some(text) = env("APISIX_WORKER_PROCESSES").filter(|text| !text.is_empty()) {
        if text == "auto" {
            return auto();
        }
        match text.parse::<usize>() {
            Ok(count) if (1..=MAX_WORKERS as usize).contains(&count) => return count,
            _ => {
                let expected = format!("auto or a whole number from 1 to {MAX_WORKERS}");
                read.fail(
                    path,
                    format!("environment variable APISIX_WORKER_PROCESSES: expected {expected}, found `{text}`"),
                );
                return auto();
            }
        }
    }
    match read.value(path) {
        None => auto(),
        Some(Value::String(text)) if text == "auto" => auto(),
        Some(_) => match read.integer(path, 1, MAX_WORKERS) {
            Some(count) => count as usize,
            None => auto(),
        },
    }
}

/// `nginx_config.http.real_ip_*`.
pub(super) fn real_ip(read: &mut Reader<'_>) -> RealIp {
    let local: IpNet = IpNet::from(std::net::IpAddr::from(std::net::Ipv4Addr::LOCALHOST));
    let header = read
        .text("nginx_config.http.real_ip_header")
        .unwrap_or_else(|| "X-Real-IP".into());
    if header.parse::<lockgate_plugin::HeaderKey>().is_err() {
        let found = Value::String(header.clone());
        read.wrong("nginx_config.http.real_ip_header", "a header name", &found);
    }
    let recursive = match read.value("nginx_config.http.real_ip_recursive") {
        // nginx's words, since that is what the original passes on.
        Some(Value::String(word)) if word == "on" => true,
        Some(Value::String(word)) if word == "off" => false,
        _ => read.flag("nginx_config.http.real_ip_recursive", false),
    };
    // Null takes the trust in this machine away.
    let default = if read.is_null("nginx_config.http.real_ip_from") {
        Vec::new()
    } else {
        vec![local]
    };
    RealIp {
        header,
        from: read
            .networks("nginx_config.http.real_ip_from")
            .unwrap_or(default),
        recursive,
    }
}

/// Limits towards clients.
pub(super) fn client(read: &mut Reader<'_>) -> Client {
    let minute = Duration::from_secs(60);
    Client {
        head: read.duration("nginx_config.http.client_header_timeout", minute),
        body: read.duration("nginx_config.http.client_body_timeout", minute),
        keepalive: read.duration("nginx_config.http.keepalive_timeout", minute),
        send: read.duration("nginx_config.http.send_timeout", Duration::from_secs(10)),
        max_body: read.size("nginx_config.http.client_max_body_size", 0),
    }
}

/// Idle upstream connections. nginx counts for each worker and upstream, Pingora for all together:
/// the default is large enough for both.
pub(super) fn upstream_keepalive(read: &mut Reader<'_>) -> UpstreamKeepalive {
    let each = read
        .integer("nginx_config.http.upstream.keepalive", 0, 1 << 20)
        .unwrap_or(320);
    UpstreamKeepalive {
        size: (each as usize).saturating_mul(16).max(1),
        requests: read
            .integer(
                "nginx_config.http.upstream.keepalive_requests",
                1,
                u64::from(u32::MAX),
            )
            .and_then(|requests| u32::try_from(requests).ok())
            .unwrap_or(1000),
        idle: read.duration(
            "nginx_config.http.upstream.keepalive_timeout",
            Duration::from_secs(60),
        ),
    }
}

/// `nginx_config.http.access_log*`.
pub(super) fn access_log(read: &mut Reader<'_>, home: &Home) -> Option<AccessLogSettings> {
    let enabled = read.flag("nginx_config.http.enable_access_log", true);
    let path =
        log_file(read, "nginx_config.http.access_log").unwrap_or_else(|| "logs/access.log".into());
    let format = read
        .text("nginx_config.http.access_log_format")
        .unwrap_or_else(|| LOG_FORMAT.into());
    // A block text ends with a line break; the log writes its own.
    let format = format.trim_end_matches(['\n', '\r']).to_owned();
    let escape = match read.choice(
        "nginx_config.http.access_log_format_escape",
        &["default", "json", "none"],
    ) {
        "json" => Escape::Json,
        "none" => Escape::None,
        _ => Escape::Default,
    };
    let buffer = read.size("nginx_config.http.access_log_buffer", 16_384);
    let settings = AccessLogSettings {
        path: home.path(&path),
        format,
        escape,
        buffer: usize::try_from(buffer).unwrap_or(16_384).min(1 << 24),
    };
    (enabled && path != "off").then_some(settings)
}

/// A log's file. What nginx sends to syslog would become a file of an odd name.
fn log_file(read: &mut Reader<'_>, path: &str) -> Option<String> {
    let file = read.text(path)?;
    if !file.starts_with("syslog:") {
        return Some(file);
    }
    let expected = "a file (syslog is not written to by this version)";
    read.wrong(path, expected, &Value::String(file));
    None
}

/// `nginx_config.error_log*`. Without a path the log goes to standard error, where supervisors and
/// containers look for it.
pub(super) fn error_log(read: &mut Reader<'_>, home: &Home) -> ErrorLog {
    let path = log_file(read, "nginx_config.error_log")
        .filter(|path| path != "stderr" && path != "/dev/stderr");
    let words = [
        "warn", "debug", "info", "notice", "error", "crit", "alert", "emerg",
    ];
    let level = match read.value("nginx_config.error_log_level") {
        // Starts and swaps are worth a line unless somebody said otherwise.
        None => "info",
        Some(_) => match read.choice("nginx_config.error_log_level", &words) {
            "debug" => "debug",
            "info" | "notice" => "info",
            "warn" => "warn",
            _ => "error",
        },
    };
    ErrorLog {
        path: path.map(|path| home.path(&path)),
        level: level.to_owned(),
    }
}

/// `nginx_config.http.charset`; `off` switches it off.
pub(super) fn charset(read: &mut Reader<'_>) -> Option<String> {
    let off = read.value("nginx_config.http.charset") == Some(&Value::Bool(false));
    if off {
        return None;
    }
    let charset = read
        .text("nginx_config.http.charset")
        .unwrap_or_else(|| "utf-8".into());
    (charset != "off").then_some(charset)
}
