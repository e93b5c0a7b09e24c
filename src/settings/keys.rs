//! Every key of APISIX's `config.yaml`, and what becomes of it here.

use lockgate_plugin::schema::closest;
use lockgate_plugin::{Problem, Problems};
use serde_json::Value;

/// What becomes of a key.
#[derive(Clone, Copy)]
enum Fate {
    /// It does what it does in APISIX.
    Honoured,
    /// It has no effect here and needs none.
    Moot,
    /// It has no effect; the text says what happens instead.
    Instead(&'static str),
    /// As `Instead`, but only worth a word when it is switched on.
    Unless(&'static str),
}

use Fate::{Honoured, Instead, Moot, Unless};

const NO_LUA: &str = "Lua is not run by this version";
const NO_SNIPPETS: &str = "there is no nginx to put configuration snippets into";
const NO_ADMIN: &str = "this version has no Admin API: routes come from the file";
const NO_ETCD: &str = "this version does not read etcd: routes come from the file";
const NO_STREAM: &str = "TCP and UDP routes are not served by this version";
const NO_DISCOVERY: &str = "service discovery is not run by this version: such upstreams have no nodes";
const ONE_STATE: &str = "all workers share their memory: there is nothing to size";

/// Keys by path; `.*` takes everything below. A key with something below it is honoured as a whole.
const KEYS: &[(&str, Fate)] = &[
    ("apisix.node_listen", Honoured),
    ("apisix.enable_admin", Unless(NO_ADMIN)),
    ("apisix.enable_admin_cors", Moot),
    ("apisix.enable_dev_mode", Honoured),
    ("apisix.enable_reuseport", Moot),
    ("apisix.show_upstream_status_in_response_header", Honoured),
    ("apisix.enable_ipv6", Honoured),
    ("apisix.enable_http2", Honoured),
    ("apisix.proxy_protocol.*", Instead("the PROXY protocol is not spoken by this version")),
    ("apisix.enable_server_tokens", Honoured),
    ("apisix.extra_lua_path", Unless(NO_LUA)),
    ("apisix.extra_lua_cpath", Unless(NO_LUA)),
    ("apisix.lua_module_hook", Unless(NO_LUA)),
    ("apisix.proxy_cache.*", Moot),
    ("apisix.delete_uri_tail_slash", Honoured),
    ("apisix.normalize_uri_like_servlet", Honoured),
    ("apisix.match_uri_encoded_slash", Honoured),
    ("apisix.max_post_args_readable_size", Instead("64 KiB of a request body can be matched by this version")),
    ("apisix.router.http", Honoured),
    ("apisix.router.ssl", Honoured),
    ("apisix.proxy_mode", Moot),
    ("apisix.stream_proxy.*", Instead(NO_STREAM)),
    ("apisix.dns_resolver", Instead("names are looked up by the system's resolver (/etc/resolv.conf)")),
    ("apisix.dns_resolver_valid", Instead("names are looked up again every 10 seconds")),
    ("apisix.resolver_timeout", Instead("a look-up may take 5 seconds")),
    ("apisix.enable_resolv_search_opt", Moot),
    ("apisix.ssl.enable", Honoured),
    ("apisix.ssl.listen", Honoured),
    ("apisix.ssl.ssl_protocols", Honoured),
    ("apisix.ssl.ssl_ciphers", Honoured),
    ("apisix.ssl.fallback_sni", Honoured),
    ("apisix.ssl.ssl_session_tickets", Unless("session tickets stay off")),
    ("apisix.ssl.ssl_trusted_certificate", Instead("certificates of upstreams are not verified by this version")),
    ("apisix.enable_control", Unless("this version has no Control API; see the status page")),
    ("apisix.control.*", Instead("this version has no Control API; see the status page")),
    ("apisix.disable_sync_configuration_during_start", Moot),
    ("apisix.worker_startup_time_threshold", Moot),
    ("apisix.data_encryption.*", Moot),
    ("apisix.status.ip", Honoured),
    ("apisix.status.port", Honoured),
    ("apisix.disable_upstream_healthcheck", Moot),
    ("apisix.trusted_addresses", Honoured),
    ("apisix.lru.*", Moot),
    ("apisix.tracing", Unless("there are no tracing plugins in this version")),
    ("apisix.events.*", Moot),
    ("apisix.id", Moot),
    ("deployment.role", Honoured),
    ("deployment.role_traditional.config_provider", Honoured),
    ("deployment.role_control_plane.config_provider", Honoured),
    ("deployment.role_data_plane.config_provider", Honoured),
    ("deployment.admin.*", Instead(NO_ADMIN)),
    ("deployment.etcd.*", Instead(NO_ETCD)),
    ("deployment.certs.*", Moot),
    ("plugins", Honoured),
    ("stream_plugins", Moot),
    ("plugin_attr.prometheus.export_uri", Honoured),
    ("plugin_attr.prometheus.metric_prefix", Honoured),
    ("plugin_attr.prometheus.enable_export_server", Honoured),
    ("plugin_attr.prometheus.export_addr.ip", Honoured),
    ("plugin_attr.prometheus.export_addr.port", Honoured),
    ("plugin_attr.prometheus.default_buckets", Honoured),
    ("plugin_attr.prometheus.llm_latency_buckets", Moot),
    ("plugin_attr.prometheus.llm_prompt_tokens_buckets", Moot),
    ("plugin_attr.prometheus.llm_completion_tokens_buckets", Moot),
    ("plugin_attr.prometheus.refresh_interval", Moot),
    ("plugin_attr.prometheus.metrics.*", Honoured),
    ("plugin_attr.redirect.https_port", Honoured),
    ("plugin_attr.*", Moot),
    ("nginx_config.user", Unless("the process keeps the user it was started as")),
    ("nginx_config.error_log", Honoured),
    ("nginx_config.error_log_level", Honoured),
    ("nginx_config.worker_processes", Honoured),
    ("nginx_config.enable_cpu_affinity", Unless("workers are not pinned to cores")),
    ("nginx_config.worker_rlimit_nofile", Moot),
    ("nginx_config.worker_rlimit_core", Moot),
    ("nginx_config.worker_shutdown_timeout", Honoured),
    ("nginx_config.max_pending_timers", Moot),
    ("nginx_config.max_running_timers", Moot),
    ("nginx_config.event.worker_connections", Instead("connections are limited by lockgate.max_connections")),
    ("nginx_config.meta.*", Unless(ONE_STATE)),
    ("nginx_config.envs", Moot),
    ("nginx_config.main_configuration_snippet", Unless(NO_SNIPPETS)),
    ("nginx_config.http_configuration_snippet", Unless(NO_SNIPPETS)),
    ("nginx_config.http_server_configuration_snippet", Unless(NO_SNIPPETS)),
    ("nginx_config.http_server_location_configuration_snippet", Unless(NO_SNIPPETS)),
    ("nginx_config.http_admin_configuration_snippet", Unless(NO_SNIPPETS)),
    ("nginx_config.http_end_configuration_snippet", Unless(NO_SNIPPETS)),
    ("nginx_config.stream_configuration_snippet", Unless(NO_SNIPPETS)),
    ("nginx_config.stream.*", Moot),
    ("nginx_config.http.enable_access_log", Honoured),
    ("nginx_config.http.access_log", Honoured),
    ("nginx_config.http.access_log_buffer", Honoured),
    ("nginx_config.http.access_log_format", Honoured),
    ("nginx_config.http.access_log_format_escape", Honoured),
    ("nginx_config.http.keepalive_timeout", Honoured),
    ("nginx_config.http.client_header_timeout", Honoured),
    ("nginx_config.http.client_body_timeout", Honoured),
    ("nginx_config.http.send_timeout", Honoured),
    ("nginx_config.http.client_max_body_size", Honoured),
    ("nginx_config.http.underscores_in_headers", Instead("header names with underscores are always passed on")),
    ("nginx_config.http.real_ip_header", Honoured),
    ("nginx_config.http.real_ip_recursive", Honoured),
    ("nginx_config.http.real_ip_from", Honoured),
    ("nginx_config.http.proxy_ssl_server_name", Instead("the server name is always sent to https upstreams")),
    ("nginx_config.http.upstream.keepalive", Honoured),
    ("nginx_config.http.upstream.keepalive_requests", Moot),
    ("nginx_config.http.upstream.keepalive_timeout", Honoured),
    ("nginx_config.http.charset", Honoured),
    ("nginx_config.http.variables_hash_max_size", Moot),
    ("nginx_config.http.lua_shared_dict.*", Unless(ONE_STATE)),
    ("nginx_config.http.custom_lua_shared_dict.*", Unless(ONE_STATE)),
    ("graphql.max_size", Moot),
    ("wasm.*", Instead("WebAssembly plugins are not run by this version")),
    ("ext-plugin.*", Instead("external plugin runners are not started by this version")),
    ("discovery.*", Instead(NO_DISCOVERY)),
    ("xrpc.*", Instead(NO_STREAM)),
    ("etcd.*", Instead(NO_ETCD)),
    ("lockgate.engine", Honoured),
    ("lockgate.upgrade_sock", Honoured),
    ("lockgate.work_stealing", Honoured),
    ("lockgate.drain_seconds", Honoured),
    ("lockgate.max_connections", Honoured),
];

/// Notes unknown keys as problems and those without effect as warnings, one for each.
pub(super) fn check(root: &Value, out: &mut Problems, warnings: &mut Problems) {
    match root {
        Value::Object(_) => walk("", root, out, warnings),
        other => out.add("", format!("settings are a mapping, found {other}")),
    }
}

fn walk(path: &str, value: &Value, out: &mut Problems, warnings: &mut Problems) {
    let Value::Object(map) = value else {
        // A section that is not a mapping; empty ones are fine.
        if !value.is_null() && !value.as_array().is_some_and(Vec::is_empty) {
            out.add(path, format!("expected a mapping, found {value}"));
        }
        return;
    };
    for (name, value) in map {
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match fate(&below) {
            Some(fate) => note(&below, fate, value, warnings),
            None if is_section(&below) => walk(&below, value, out, warnings),
            None => {
                let mut problem = Problem::new(below.as_str(), format!("unknown key `{name}`"));
                problem.hint = suggestion(path, name);
                out.push(problem);
            }
        }
    }
}

fn fate(path: &str) -> Option<Fate> {
    let exact = KEYS.iter().find(|(key, _)| *key == path);
    let whole = || {
        KEYS.iter().find(|(key, _)| {
            key.strip_suffix(".*").is_some_and(|section| {
                path == section && !is_section_of_keys(section)
                    || path.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
            })
        })
    };
    if exact.is_none() && is_section(path) {
        return None;
    }
    exact.or_else(whole).map(|(_, fate)| *fate)
}

/// Whether named keys lie below a section that also takes anything, as in `plugin_attr`.
fn is_section_of_keys(section: &str) -> bool {
    KEYS.iter().any(|(key, _)| {
        key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.') && rest != ".*")
    })
}

/// Whether keys are known below a path, other than all of them.
fn is_section(path: &str) -> bool {
    is_section_of_keys(path)
}

fn note(path: &str, fate: Fate, value: &Value, warnings: &mut Problems) {
    let off = match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    match fate {
        Instead(text) if !value.is_null() => warnings.add(path, format!("has no effect: {text}")),
        Unless(text) if !off => warnings.add(path, format!("has no effect: {text}")),
        _ => {}
    }
}

/// The closest key beside a wrong one, or the same name in another section.
fn suggestion(section: &str, name: &str) -> Option<String> {
    let prefix = if section.is_empty() { String::new() } else { format!("{section}.") };
    let beside = KEYS.iter().filter_map(|(key, _)| key.strip_prefix(prefix.as_str())?.split('.').next());
    if let Some(close) = closest(name, beside.filter(|name| *name != "*")) {
        return Some(format!("did you mean `{prefix}{close}`?"));
    }
    let elsewhere = KEYS.iter().find(|(key, _)| key.rsplit('.').next() == Some(name));
    elsewhere.map(|(key, _)| format!("it belongs at `{key}`"))
}
