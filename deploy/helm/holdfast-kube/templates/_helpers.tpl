{{- define "kube.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "kube.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kube.labels" -}}
{{ include "kube.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "kube.inventorySelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-inventory
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kube.inventoryLabels" -}}
{{ include "kube.inventorySelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "kube.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "kube.certificate" -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "kube.name" .)) }}
{{- end }}

{{/* What the schema cannot say. */}}
{{- define "kube.check" -}}
{{- if and (not .Values.tls.existingSecret) (not .Values.tls.issuer) }}
{{- fail "tls: name a Secret in existingSecret, or an Issuer of cert-manager in issuer" }}
{{- end }}
{{- if and .Values.tls.existingSecret (not .Values.tls.caBundle) }}
{{- fail "tls.caBundle: the API server needs the certificate authority of the Secret" }}
{{- end }}
{{- if and .Values.inventory.enabled (or (not .Values.inventory.group) (not .Values.inventory.place)) }}
{{- fail "inventory: group and place are required" }}
{{- end }}
{{- if has .Release.Namespace .Values.exemptNamespaces | not }}
{{- if eq .Release.Namespace "default" }}
{{- fail "install this chart in a namespace of its own, which is exempt" }}
{{- end }}
{{- end }}
{{- end }}

{{/* (list ROOT PATH): where the API server finds the webhook. */}}
{{- define "kube.client" -}}
{{- $root := index . 0 }}
service:
  name: {{ include "kube.name" $root }}
  namespace: {{ $root.Release.Namespace }}
  path: {{ index . 1 }}
{{- with $root.Values.tls.caBundle }}
caBundle: {{ b64enc . }}
{{- end }}
{{- end }}

{{/* The objects that are checked. */}}
{{- define "kube.rules" -}}
- operations: [CREATE, UPDATE]
  apiGroups: [""]
  apiVersions: [v1]
  resources: [pods, pods/ephemeralcontainers, podtemplates, replicationcontrollers]
  scope: Namespaced
- operations: [CREATE, UPDATE]
  apiGroups: [apps]
  apiVersions: [v1]
  resources: [deployments, replicasets, statefulsets, daemonsets]
  scope: Namespaced
- operations: [CREATE, UPDATE]
  apiGroups: [batch]
  apiVersions: [v1]
  resources: [jobs, cronjobs]
  scope: Namespaced
{{- end }}

{{/* (list ROOT MODE): the namespaces with a mode. */}}
{{- define "kube.namespaces" -}}
{{- $root := index . 0 }}
{{- $mode := index . 1 }}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: {{ append $root.Values.exemptNamespaces $root.Release.Namespace | uniq | toJson }}
  {{- if eq $mode $root.Values.mode }}
  - key: holdfast.dev/admission # also namespaces without the label
    operator: NotIn
    values: {{ without (list "enforce" "warn" "audit" "off") $mode | toJson }}
  {{- else }}
  - key: holdfast.dev/admission
    operator: In
    values: [{{ $mode }}]
  {{- end }}
{{- end }}
