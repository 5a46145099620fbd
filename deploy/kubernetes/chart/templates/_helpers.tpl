{{- define "gossipkv.selector" -}}
app.kubernetes.io/name: gossipkv
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gossipkv.labels" -}}
{{ include "gossipkv.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* Text of one value: Helm reads each number of a values file as a floating one, and would print 2e+06. */}}
{{- define "gossipkv.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}{{ else }}{{ toString . }}{{ end }}
{{- end }}

{{- /* The settings of each node, as a YAML map of texts: those of the release over those of the chart; null removes one. */}}
{{- define "gossipkv.settings" -}}
{{- $settings := dict
  "data" "/var/lib/gossipkv/data"
  "backup_roots" "/var/lib/gossipkv/backups"
  "listen" "0.0.0.0:7070"
  "http_listen" "0.0.0.0:8080"
  "http_hosts" "*"
  "log_format" "json" }}
{{- $given := dict }}
{{- range $name, $value := .Values.settings }}
{{- $texts := list }}
{{- range (kindIs "slice" $value | ternary $value (list $value)) }}{{ $texts = append $texts (include "gossipkv.text" .) }}{{ end }}
{{- $_ := set $given $name (kindIs "invalid" $value | ternary nil (join "," $texts)) }}
{{- end }}
{{- range $kind, $file := dict "keyRing" "keys" "users" "users" "config" "gossipkv.toml" }}
{{- if index $.Values.secrets $kind }}
{{- $_ := set $settings (snakecase $kind) (printf "/etc/gossipkv/%s/%s" (kebabcase $kind) $file) }}
{{- end }}
{{- end }}
{{- if eq (include "gossipkv.tls" .) "secret" }}
{{- $_ := set $settings "tls_certificate" "/etc/gossipkv/tls/$(GOSSIPKV_NODE_NAME).pem" }}
{{- $_ := set $settings "tls_key" "/etc/gossipkv/tls/$(GOSSIPKV_NODE_NAME).key" }}
{{- $_ := set $settings "tls_peers" "/etc/gossipkv/tls/ca.pem" }}
{{- else if include "gossipkv.tls" . }}
{{- $_ := set $settings "tls_certificate" "/etc/gossipkv/tls/tls.crt" }}
{{- $_ := set $settings "tls_key" "/etc/gossipkv/tls/tls.key" }}
{{- $_ := set $settings "tls_peers" "/etc/gossipkv/tls/ca.crt" }}
{{- end }}
{{- $port := regexFind "[0-9]+$" (get $given "listen" | default $settings.listen) }}
{{- $_ := set $settings "join" (printf "%s-nodes:%s" .Release.Name $port) }}
{{- $_ := set $settings "advertise" (printf "$(GOSSIPKV_NODE_NAME).%s-nodes:%s" .Release.Name $port) }}
{{- $_ := set $settings "advertise_address" "$(POD_IP)" }}
{{- range $name, $text := $given }}
{{- if kindIs "invalid" $text }}{{ $_ := unset $settings $name }}{{ else }}{{ $_ := set $settings $name $text }}{{ end }}
{{- end }}
{{- toYaml $settings }}
{{- end }}

{{- /* The ports of a node by name, as a YAML map. */}}
{{- define "gossipkv.ports" -}}
{{- $settings := include "gossipkv.settings" . | fromYaml }}
{{- range $port, $name := dict "rpc" "listen" "http" "http_listen" "resp" "resp_listen" }}
{{- with regexFind "[0-9]+$" (get $settings $name) }}
{{ $port }}: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Where certificates come from: "secret", "issuer", or nothing without TLS. */}}
{{- define "gossipkv.tls" -}}
{{- if and .Values.secrets.tls .Values.certManager.issuer }}
{{- fail "secrets.tls and certManager.issuer are both set: certificates come from one of the two" }}
{{- end }}
{{- if and .Values.certManager.issuer (not .Values.fsGroup) }}
{{- fail "certManager.issuer needs fsGroup: the group of the pod that may read the key" }}
{{- end }}
{{- if .Values.secrets.tls }}secret{{ else if .Values.certManager.issuer }}issuer{{ end }}
{{- end }}

{{- /* The names in a certificate that the issuer writes for a pod. */}}
{{- define "gossipkv.hosts" -}}
{{- $name := .Release.Name -}}
{{- $pod := printf "${POD_NAME}.%s-nodes" $name -}}
${POD_NAME},{{ $pod }},{{ $pod }}.${POD_NAMESPACE}.svc,{{ $name }},{{ $name }}.${POD_NAMESPACE},{{ $name }}.${POD_NAMESPACE}.svc
{{- end }}

{{- /* Seconds from the end of a pod's service to its kill: the pause before SIGTERM, twice `drain_timeout`, and a rest. */}}
{{- define "gossipkv.grace" -}}
{{- $drain := get (include "gossipkv.settings" . | fromYaml) "drain_timeout" | default "10s" }}
{{- $seconds := get (dict "ms" 0.001 "s" 1 "m" 60 "h" 3600) (regexFind "[a-z]+$" $drain) | default 0 }}
{{- $drain = mulf (regexFind "^[0-9.]+" $drain | float64) $seconds | ceil | int64 }}
{{- add (int64 .Values.pauseBeforeStopSeconds) (mul 2 $drain) 20 }}
{{- end }}

{{- define "gossipkv.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ if include "gossipkv.tls" .root }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}
