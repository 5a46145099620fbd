{{- define "gossipkv.selector" -}}
app.kubernetes.io/name: gossipkv
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gossipkv.labels" -}}
{{ include "gossipkv.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "gossipkv.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ if .root.Values.secrets.tls }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}
