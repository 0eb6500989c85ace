{{- define "holdfast.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "holdfast.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "holdfast.labels" -}}
{{ include "holdfast.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "holdfast.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "holdfast.name" .) }}
{{- end }}

{{- define "holdfast.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "holdfast.claim" -}}
{{ .Values.persistence.existingClaim | default (include "holdfast.name" .) }}
{{- end }}

{{/* Whether the volume has blobs alone. Replicas share it, and each has a control socket of its own in its data folder. */}}
{{- define "holdfast.blobVolume" -}}
{{- if and (eq .Values.database.engine "postgres") (not .Values.blobs.bucket) }}true{{ end }}
{{- end }}

{{/* The hosts of baseUrl and registryHost, as a list in JSON. */}}
{{- define "holdfast.hosts" -}}
{{- $host := (urlParse .Values.baseUrl).hostname }}
{{- list $host (.Values.registryHost | default $host) | uniq | toJson }}
{{- end }}

{{/* What the schema cannot say. */}}
{{- define "holdfast.check" -}}
{{- $several := or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled }}
{{- if and $several (eq .Values.database.engine "sqlite") }}
{{- fail "several replicas need PostgreSQL: set database.engine to postgres, or replicas to 1 without autoscaling" }}
{{- end }}
{{- if and $several (not .Values.blobs.bucket) (ne .Values.persistence.accessMode "ReadWriteMany") }}
{{- fail "several replicas need shared blobs: set blobs.bucket, or persistence.accessMode to ReadWriteMany" }}
{{- end }}
{{- if and (eq .Values.database.engine "postgres") (not .Values.database.existingSecret) }}
{{- fail "database.existingSecret: name the Secret with the address of PostgreSQL" }}
{{- end }}
{{- if and (eq .Values.database.engine "postgres") (not .Values.encryptionKey.existingSecret) }}
{{- fail "encryptionKey.existingSecret: name the Secret with the key that all replicas share" }}
{{- end }}
{{- range .Values.gateway.grpcHostnames }}
{{- if has . ($.Values.gateway.hostnames | default (include "holdfast.hosts" $ | fromJsonArray)) }}
{{- fail (printf "gateway.grpcHostnames: %s is served by the HTTPRoute, which serves gRPC as well" .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The settings, as variables. */}}
{{- define "holdfast.env" -}}
- name: HOLDFAST_LISTEN
  value: ":8080"
- name: HOLDFAST_METRICS_LISTEN
  value: ":{{ .Values.metrics.port }}"
- name: HOLDFAST_BASE_URL
  value: {{ .Values.baseUrl | quote }}
- name: HOLDFAST_DATA_DIR
  value: /var/lib/holdfast
- name: HOLDFAST_SHUTDOWN_DELAY # it serves until clients have noticed that it stops
  value: {{ printf "%ds" (int .Values.shutdown.delaySeconds) | quote }}
- name: HOLDFAST_SHUTDOWN_GRACE
  value: {{ .Values.shutdown.graceSeconds }}s
{{- with .Values.registryHost }}
- name: HOLDFAST_REGISTRY_HOST
  value: {{ . | quote }}
{{- end }}
{{- with .Values.trustedProxies }}
- name: HOLDFAST_TRUSTED_PROXIES
  value: {{ join "," . | quote }}
{{- end }}
{{- if eq .Values.database.engine "postgres" }}
- name: HOLDFAST_DATABASE
  {{- include "holdfast.secret" (list .Values.database.existingSecret .Values.database.key) | nindent 2 }}
{{- end }}
{{- with .Values.encryptionKey.existingSecret }}
- name: HOLDFAST_ENCRYPTION_KEY
  {{- include "holdfast.secret" (list . $.Values.encryptionKey.key) | nindent 2 }}
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: HOLDFAST_TLS_CERT
  value: /etc/holdfast/tls/tls.crt
- name: HOLDFAST_TLS_KEY
  value: /etc/holdfast/tls/tls.key
{{- end }}
{{- with .Values.blobs }}
{{- if .bucket }}
- name: HOLDFAST_BLOBS
  value: {{ .bucket | quote }}
- name: HOLDFAST_S3_REGION
  value: {{ .region | quote }}
{{- with .endpoint }}
- name: HOLDFAST_S3_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- if .existingSecret }}
- name: AWS_ACCESS_KEY_ID
  {{- include "holdfast.secret" (list .existingSecret .accessKeyKey) | nindent 2 }}
- name: AWS_SECRET_ACCESS_KEY
  {{- include "holdfast.secret" (list .existingSecret .secretKeyKey) | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.traces }}
{{- if .endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ .protocol | quote }}
- name: OTEL_TRACES_SAMPLER
  value: traceidratio
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ .ratio | toString | quote }}
{{- if .existingSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  {{- include "holdfast.secret" (list .existingSecret .key) | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: HOLDFAST_{{ upper $name }}
  value: {{ kindIs "float64" $value | ternary (int64 $value) $value | toString | quote }}{{/* not 1e+06 */}}
{{- end }}
{{- end }}

{{/* (list SECRET KEY): where a variable gets its value. */}}
{{- define "holdfast.secret" -}}
valueFrom:
  secretKeyRef:
    name: {{ index . 0 }}
    key: {{ index . 1 }}
{{- end }}

{{/* (list ROOT PATH): the request of a probe. */}}
{{- define "holdfast.get" -}}
httpGet:
  path: {{ index . 1 }}
  port: http
  scheme: {{ empty (index . 0).Values.tls.existingSecret | ternary "HTTP" "HTTPS" }}
{{- end }}
