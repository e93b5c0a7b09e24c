//! The table: every key of APISIX's `config.yaml` and of the section `lockgate`.
//!
//! Source: the original's defaults and commented example, and its schema of the settings.

use super::Fate::{Honoured, Instead, Moot};
use super::Kind::{
    Duration, Flag, Free, List, Number, OnOff, Own, Port, Section, Size, Switch, Text, Texts,
};
use super::{Key, OFF};

const NO_LUA: Key = Key::of(Text, Instead("Lua is not run by this version", OFF));
const NO_SNIPPET: Key = Key::of(
    Text,
    Instead("there is no nginx to put configuration snippets into", OFF),
);
const NO_STREAM: &str = "TCP and UDP routes are not served by this version";
/// A key of the time before 3.0. Its value is not even looked at.
const fn moved(text: &'static str) -> Key {
    Key::of(Own, Instead(text, &[])).secret()
}
const ONE_MEMORY: Key = Key::of(Free, Moot);

const HONOURED: Key = Key::of(Own, Honoured);
const FLAG: Key = Key::of(Flag, Moot);
const NUMBER: Key = Key::of(Number, Moot);
const PORT: Key = Key::of(Port, Moot);
const TEXT: Key = Key::of(Text, Moot);
const TEXTS: Key = Key::of(Texts, Moot);
const LIST: Key = Key::of(List, Moot);
const FREE: Key = Key::of(Free, Moot);
/// With addresses go names, passwords and tokens.
const SERVERS: Key = FREE.secret();
/// Attributes of a plugin that is not here.
pub(super) const PLUGIN_ATTR: Key = FREE.secret();

/// Keys by path. A path that others begin with is a section, whether it is listed or not.
pub(super) const KEYS: &[(&str, Key)] = &[
    ("apisix.node_listen", HONOURED),
    ("apisix.enable_admin", HONOURED),
    ("apisix.enable_admin_cors", FLAG),
    ("apisix.enable_dev_mode", HONOURED),
    ("apisix.enable_reuseport", FLAG),
    ("apisix.show_upstream_status_in_response_header", HONOURED),
    ("apisix.enable_ipv6", HONOURED),
    ("apisix.enable_http2", HONOURED),
    (
        "apisix.proxy_protocol",
        Key::of(
            Section,
            Instead("the PROXY protocol is not spoken by this version", OFF),
        ),
    ),
    ("apisix.proxy_protocol.listen_http_port", PORT),
    ("apisix.proxy_protocol.listen_https_port", PORT),
    ("apisix.proxy_protocol.enable_tcp_pp", FLAG),
    ("apisix.proxy_protocol.enable_tcp_pp_to_upstream", FLAG),
    ("apisix.enable_server_tokens", HONOURED),
    ("apisix.extra_lua_path", NO_LUA),
    ("apisix.extra_lua_cpath", NO_LUA),
    ("apisix.lua_module_hook", NO_LUA),
    // Read by plugins that this version refuses by name.
    ("apisix.proxy_cache.cache_ttl", Key::of(Duration, Moot)),
    ("apisix.proxy_cache.zones", LIST),
    ("apisix.delete_uri_tail_slash", HONOURED),
    ("apisix.normalize_uri_like_servlet", HONOURED),
    ("apisix.match_uri_encoded_slash", HONOURED),
    (
        "apisix.max_post_args_readable_size",
        Key::of(
            Number,
            Instead(
                "64 KiB of a request body can be matched by this version",
                &["64"],
            ),
        ),
    ),
    ("apisix.router.http", HONOURED),
    ("apisix.router.ssl", HONOURED),
    (
        "apisix.proxy_mode",
        Key::of(
            Text,
            Instead(
                "HTTP is served; TCP and UDP routes are not, by this version",
                &["\"http\""],
            ),
        ),
    ),
    (
        "apisix.stream_proxy",
        Key::of(Section, Instead(NO_STREAM, OFF)),
    ),
    ("apisix.stream_proxy.tcp", LIST),
    ("apisix.stream_proxy.udp", LIST),
    (
        "apisix.dns_resolver",
        Key::of(
            Texts,
            Instead(
                "names are looked up by the system's resolver (/etc/resolv.conf)",
                OFF,
            ),
        ),
    ),
    (
        "apisix.dns_resolver_valid",
        Key::of(
            Number,
            Instead("names are looked up again every 10 seconds", &["10"]),
        ),
    ),
    (
        "apisix.resolver_timeout",
        Key::of(Number, Instead("a look-up may take 5 seconds", &["5"])),
    ),
    (
        "apisix.enable_resolv_search_opt",
        Key::of(
            Flag,
            Instead("the system's resolver follows /etc/resolv.conf", &["true"]),
        ),
    ),
    ("apisix.ssl.enable", HONOURED),
    ("apisix.ssl.listen", HONOURED),
    ("apisix.ssl.ssl_protocols", HONOURED),
    ("apisix.ssl.ssl_ciphers", HONOURED),
    ("apisix.ssl.fallback_sni", HONOURED),
    (
        "apisix.ssl.ssl_session_tickets",
        Key::of(Flag, Instead("session tickets stay off", OFF)),
    ),
    (
        "apisix.ssl.ssl_trusted_certificate",
        Key::of(
            Text,
            Instead(
                "certificates of upstreams are not verified by this version",
                &["\"system\""],
            ),
        ),
    ),
    ("apisix.enable_control", HONOURED),
    ("apisix.control.ip", HONOURED),
    ("apisix.control.port", HONOURED),
    ("apisix.control.router", TEXT),
    ("apisix.disable_sync_configuration_during_start", FLAG),
    ("apisix.worker_startup_time_threshold", NUMBER),
    // Encrypted fields exist in etcd only.
    ("apisix.data_encryption.enable", FLAG),
    ("apisix.data_encryption.enable_encrypt_fields", FLAG),
    (
        "apisix.data_encryption.keyring",
        Key::of(Own, Moot).secret(),
    ),
    ("apisix.status", Key::of(Switch, Honoured)),
    ("apisix.status.ip", HONOURED),
    ("apisix.status.port", HONOURED),
    ("apisix.disable_upstream_healthcheck", FLAG),
    ("apisix.trusted_addresses", HONOURED),
    ("apisix.lru.secret.ttl", NUMBER),
    ("apisix.lru.secret.count", NUMBER),
    ("apisix.lru.secret.neg_ttl", NUMBER),
    ("apisix.lru.secret.neg_count", NUMBER),
    (
        "apisix.tracing",
        Key::of(
            Flag,
            Instead("there are no tracing plugins in this version", OFF),
        ),
    ),
    ("apisix.events.module", TEXT),
    ("apisix.id", Key::of(Own, Moot)),
    ("deployment.role", HONOURED),
    ("deployment.role_traditional.config_provider", HONOURED),
    ("deployment.role_control_plane.config_provider", HONOURED),
    ("deployment.role_data_plane.config_provider", HONOURED),
    // None has an effect on a process that reads its routes from a file.
    ("deployment.admin.admin_key_required", HONOURED),
    (
        "deployment.admin.admin_key",
        Key::of(List, Honoured).secret(),
    ),
    ("deployment.admin.enable_admin_cors", HONOURED),
    ("deployment.admin.enable_admin_ui", FLAG),
    ("deployment.admin.allow_admin", HONOURED),
    ("deployment.admin.admin_listen.ip", HONOURED),
    ("deployment.admin.admin_listen.port", HONOURED),
    ("deployment.admin.https_admin", HONOURED),
    ("deployment.admin.admin_api_mtls.admin_ssl_cert", HONOURED),
    (
        "deployment.admin.admin_api_mtls.admin_ssl_cert_key",
        Key::of(Text, Honoured).secret(),
    ),
    (
        "deployment.admin.admin_api_mtls.admin_ssl_ca_cert",
        HONOURED,
    ),
    (
        "deployment.admin.admin_api_version",
        Key::of(Text, Honoured),
    ),
    // What is below is checked where it is read: it may stand under its old name, too.
    ("deployment.etcd", Key::of(Free, Honoured).secret()),
    ("deployment.certs.cert", TEXT),
    ("deployment.certs.cert_key", TEXT.secret()),
    ("deployment.certs.trusted_ca_cert", TEXT),
    ("plugins", HONOURED),
    ("stream_plugins", TEXTS),
    ("plugin_attr.prometheus.export_uri", HONOURED),
    ("plugin_attr.prometheus.metric_prefix", HONOURED),
    ("plugin_attr.prometheus.enable_export_server", HONOURED),
    ("plugin_attr.prometheus.export_addr.ip", HONOURED),
    ("plugin_attr.prometheus.export_addr.port", HONOURED),
    ("plugin_attr.prometheus.default_buckets", HONOURED),
    ("plugin_attr.prometheus.llm_latency_buckets", LIST),
    ("plugin_attr.prometheus.llm_prompt_tokens_buckets", LIST),
    ("plugin_attr.prometheus.llm_completion_tokens_buckets", LIST),
    // Metrics are made when they are asked for: there is no copy to refresh.
    ("plugin_attr.prometheus.refresh_interval", NUMBER),
    ("plugin_attr.prometheus.metrics", Key::of(Free, Honoured)),
    ("plugin_attr.redirect.https_port", Key::of(Port, Honoured)),
    (
        "nginx_config.user",
        Key::of(
            Text,
            Instead("the process keeps the user it was started as", OFF),
        ),
    ),
    ("nginx_config.error_log", HONOURED),
    ("nginx_config.error_log_level", HONOURED),
    ("nginx_config.worker_processes", HONOURED),
    (
        "nginx_config.enable_cpu_affinity",
        Key::of(Flag, Instead("workers are not pinned to cores", OFF)),
    ),
    (
        "nginx_config.worker_rlimit_nofile",
        Key::of(
            Number,
            Instead(
                "the limit of open files is raised as far as the process may (ulimit -Hn, LimitNOFILE)",
                &[],
            ),
        ),
    ),
    ("nginx_config.worker_rlimit_core", Key::of(Size, Moot)),
    ("nginx_config.worker_shutdown_timeout", HONOURED),
    ("nginx_config.max_pending_timers", NUMBER),
    ("nginx_config.max_running_timers", NUMBER),
    (
        "nginx_config.event.worker_connections",
        Key::of(
            Number,
            Instead(
                "connections are limited by lockgate.max_connections",
                &["10620"],
            ),
        ),
    ),
    ("nginx_config.meta.lua_shared_dict", ONE_MEMORY),
    // Names need no export here; `NAME=VALUE` would set a variable.
    ("nginx_config.envs", TEXTS),
    ("nginx_config.main_configuration_snippet", NO_SNIPPET),
    ("nginx_config.http_configuration_snippet", NO_SNIPPET),
    ("nginx_config.http_server_configuration_snippet", NO_SNIPPET),
    (
        "nginx_config.http_server_location_configuration_snippet",
        NO_SNIPPET,
    ),
    ("nginx_config.http_admin_configuration_snippet", NO_SNIPPET),
    ("nginx_config.http_end_configuration_snippet", NO_SNIPPET),
    ("nginx_config.stream_configuration_snippet", NO_SNIPPET),
    ("nginx_config.stream.enable_access_log", FLAG),
    ("nginx_config.stream.access_log", TEXT),
    ("nginx_config.stream.access_log_format", TEXT),
    ("nginx_config.stream.access_log_format_escape", TEXT),
    ("nginx_config.stream.real_ip_from", TEXTS),
    ("nginx_config.stream.lua_shared_dict", ONE_MEMORY),
    ("nginx_config.http.enable_access_log", HONOURED),
    ("nginx_config.http.access_log", HONOURED),
    ("nginx_config.http.access_log_buffer", HONOURED),
    ("nginx_config.http.access_log_format", HONOURED),
    ("nginx_config.http.access_log_format_escape", HONOURED),
    ("nginx_config.http.keepalive_timeout", HONOURED),
    ("nginx_config.http.client_header_timeout", HONOURED),
    ("nginx_config.http.client_body_timeout", HONOURED),
    ("nginx_config.http.send_timeout", HONOURED),
    ("nginx_config.http.client_max_body_size", HONOURED),
    (
        "nginx_config.http.underscores_in_headers",
        Key::of(
            OnOff,
            Instead(
                "header names with underscores are always passed on",
                &["\"on\"", "true"],
            ),
        ),
    ),
    ("nginx_config.http.real_ip_header", HONOURED),
    ("nginx_config.http.real_ip_recursive", HONOURED),
    ("nginx_config.http.real_ip_from", HONOURED),
    (
        "nginx_config.http.proxy_ssl_server_name",
        Key::of(
            Flag,
            Instead(
                "the server name is always sent to https upstreams",
                &["true"],
            ),
        ),
    ),
    ("nginx_config.http.upstream.keepalive", HONOURED),
    ("nginx_config.http.upstream.keepalive_requests", HONOURED),
    ("nginx_config.http.upstream.keepalive_timeout", HONOURED),
    ("nginx_config.http.charset", HONOURED),
    ("nginx_config.http.variables_hash_max_size", NUMBER),
    ("nginx_config.http.lua_shared_dict", ONE_MEMORY),
    ("nginx_config.http.custom_lua_shared_dict", ONE_MEMORY),
    ("graphql.max_size", Key::of(Size, Moot)),
    (
        "wasm",
        Key::of(
            Section,
            Instead("WebAssembly plugins are not run by this version", OFF),
        ),
    ),
    ("wasm.plugins", LIST),
    (
        "ext-plugin",
        Key::of(
            Section,
            Instead(
                "external plugin runners are not started by this version",
                OFF,
            ),
        ),
    ),
    ("ext-plugin.cmd", TEXTS),
    ("ext-plugin.path_for_test", TEXT),
    (
        "discovery",
        Key::of(
            Section,
            Instead(
                "service discovery is not run by this version: such upstreams have no nodes",
                OFF,
            ),
        ),
    ),
    ("discovery.dns", SERVERS),
    ("discovery.eureka", SERVERS),
    ("discovery.nacos", SERVERS),
    ("discovery.consul", SERVERS),
    ("discovery.consul_kv", SERVERS),
    ("discovery.tars", SERVERS),
    // One cluster, or a list of them.
    ("discovery.kubernetes", Key::of(Own, Moot).secret()),
    ("xrpc", Key::of(Section, Instead(NO_STREAM, OFF))),
    ("xrpc.protocols", LIST),
    // The original's old name of `deployment.etcd`.
    ("etcd", SERVERS),
    // Where the Admin API was configured before 3.0. Behind the new places, which are the ones to
    // suggest for a key that stands in a wrong section.
    (
        "apisix.admin_key",
        moved("since 3.0 the place is deployment.admin.admin_key"),
    ),
    (
        "apisix.allow_admin",
        moved("since 3.0 the place is deployment.admin.allow_admin"),
    ),
    (
        "apisix.admin_listen",
        moved("since 3.0 the place is deployment.admin.admin_listen"),
    ),
    (
        "apisix.port_admin",
        moved("since 3.0 the place is deployment.admin.admin_listen"),
    ),
    (
        "apisix.https_admin",
        moved("since 3.0 the place is deployment.admin.https_admin"),
    ),
    (
        "apisix.admin_api_mtls",
        moved("since 3.0 the place is deployment.admin.admin_api_mtls"),
    ),
    (
        "apisix.admin_api_version",
        moved("since 3.0 the place is deployment.admin.admin_api_version"),
    ),
    ("lockgate.store", HONOURED),
    ("lockgate.engine", HONOURED),
    ("lockgate.min_body_rate", HONOURED),
    ("lockgate.upgrade_sock", HONOURED),
    ("lockgate.work_stealing", HONOURED),
    ("lockgate.drain_seconds", HONOURED),
    ("lockgate.max_connections", HONOURED),
    ("lockgate.history_generations", HONOURED),
    ("lockgate.history_bytes", HONOURED),
    ("lockgate.recent_requests", HONOURED),
    ("lockgate.limit.table_bytes", HONOURED),
    ("lockgate.cluster.owner", HONOURED),
    ("lockgate.cluster.listen", HONOURED),
    ("lockgate.cluster.advertise", HONOURED),
    ("lockgate.cluster.peers", HONOURED),
    ("lockgate.cluster.timeout", HONOURED),
    ("lockgate.cluster.tls.ca", HONOURED),
    ("lockgate.cluster.tls.cert", HONOURED),
    ("lockgate.cluster.tls.key", HONOURED),
    ("lockgate.cluster.secret", Key::of(Own, Honoured).secret()),
];
