// Package admission decides for the API server of a Kubernetes cluster whether an object with certain images may be
// created. The rules of Holdfast decide about images of its registry, and Rules decides about all others.
package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	findingspb "github.com/holdfast-dev/holdfast/gen/findings/v1"
)

const (
	// maxReview is the maximum size of a review, in bytes. It contains an object of up to 3 MiB before and after a change.
	maxReview = 8 << 20

	reviewTimeout = 9 * time.Second // less than the 10 seconds that the API server waits by default
	maxMessage    = 4096            // maximum length of a refusal, in bytes
	maxWarning    = 250             // the API server cuts longer warnings
)

// Config configures a Handler.
type Config struct {
	Hosts    []string // hosts of the registry in the names of images; the first one is its own
	Rules    Rules
	Log      *slog.Logger
	Registry prometheus.Registerer // gets the metrics
}

// A Handler answers reviews.
type Handler struct {
	Config
	asker   *Asker
	mux     *http.ServeMux
	reviews *prometheus.CounterVec
	outages prometheus.Counter
	seconds prometheus.Histogram
}

// NewHandler returns a Handler. It answers POST to /validate/enforce, /validate/warn, /validate/audit and /mutate.
func NewHandler(a *Asker, c Config) *Handler {
	h := &Handler{Config: c, asker: a, mux: http.NewServeMux(),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_kube_reviews_total", Help: "Reviewed objects, by mode and result.",
		}, []string{"mode", "result"}),
		outages: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_kube_unanswered_total", Help: "Reviewed objects for which Holdfast could not be asked.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_kube_review_seconds", Help: "Time for a review.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
	}
	c.Registry.MustRegister(h.reviews, h.outages, h.seconds)
	for _, mode := range []Mode{Enforce, WarnOnly, Audit} {
		h.handle("/validate/"+string(mode), func(
			ctx context.Context, r *admissionv1.AdmissionRequest,
		) *admissionv1.AdmissionResponse {
			return h.validate(ctx, mode, r)
		})
	}
	h.handle("/mutate", h.mutate)
	return h
}

// ServeHTTP answers a review.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// handle answers reviews at a path.
func (h *Handler) handle(
	path string, answer func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse,
) {
	h.mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReview))
		if err != nil {
			http.Error(w, "the review is too large", http.StatusRequestEntityTooLarge)
			return
		}
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &review); err != nil || review.Request == nil || review.Request.UID == "" ||
			review.APIVersion != admissionv1.SchemeGroupVersion.String() {
			http.Error(w, "this is not an AdmissionReview of admission.k8s.io/v1 with a request", http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
		defer cancel()
		response := answer(ctx, review.Request)
		response.UID = review.Request.UID
		h.seconds.Observe(time.Since(begin).Seconds())
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: response})
	})
}

// A verdict is what the rules say about one image.
type verdict struct {
	use    use
	action Action
	reason string
	digest string // at present; "" if it is not known
}

// validate decides whether an object may be created or changed.
func (h *Handler) validate(
	ctx context.Context, mode Mode, r *admissionv1.AdmissionRequest,
) *admissionv1.AdmissionResponse {
	uses, err := newUses(r.Kind.Kind, r.Object.Raw, r.OldObject.Raw)
	if err != nil {
		return h.refuse(mode, r, http.StatusBadRequest, err.Error())
	}
	verdicts, err := h.judge(ctx, r.Namespace, uses)
	if errors.Is(err, ErrBusy) {
		return h.refuse(mode, r, http.StatusTooManyRequests, err.Error())
	}
	var refusals, warnings []string
	for _, v := range verdicts {
		text := fmt.Sprintf("%s: %s", clip(v.use.image, 512), v.reason)
		switch v.action {
		case Refuse:
			refusals = append(refusals, text)
		case Warn:
			warnings = append(warnings, text)
		}
	}
	if mode == Enforce && len(refusals) > 0 {
		return h.refuse(mode, r, http.StatusForbidden, strings.Join(refusals, "; "))
	}
	response := &admissionv1.AdmissionResponse{Allowed: true}
	if len(refusals) > 0 {
		response.AuditAnnotations = map[string]string{"refused": clip(strings.Join(refusals, "; "), maxMessage)}
	}
	result := "allowed"
	if len(refusals)+len(warnings) > 0 {
		result = "warned"
	}
	if mode != Audit {
		for _, text := range slices.Concat(refusals, warnings) {
			response.Warnings = append(response.Warnings, clip(text, maxWarning))
		}
	}
	h.reviews.WithLabelValues(string(mode), result).Inc()
	return response
}

// refuse refuses an object in the mode Enforce. In other modes it accepts the object and says so.
func (h *Handler) refuse(
	mode Mode, r *admissionv1.AdmissionRequest, code int32, why string,
) *admissionv1.AdmissionResponse {
	why = clip(why, maxMessage)
	response := &admissionv1.AdmissionResponse{
		Allowed: mode != Enforce, AuditAnnotations: map[string]string{"refused": why},
	}
	if mode == WarnOnly {
		response.Warnings = []string{clip(why, maxWarning)}
	}
	result := "warned"
	if !response.Allowed {
		result = "refused"
		response.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: code, Reason: metav1.StatusReasonForbidden, Message: why,
		}
		h.Log.Info("refused an object", "kind", r.Kind.Kind, "namespace", r.Namespace, "name", r.Name, "reason", why)
	}
	h.reviews.WithLabelValues(string(mode), result).Inc()
	return response
}

// judge applies the rules to images. The only error is ErrBusy.
func (h *Handler) judge(ctx context.Context, namespace string, uses []use) (all []verdict, _ error) {
	var ask []string
	for _, u := range uses {
		host, rest := splitHost(u.image)
		if !slices.Contains(h.Hosts, host) {
			action := h.Rules.other(host, rest)
			reason := "images of " + clip(host, 256) + " are not wanted here"
			all = append(all, verdict{use: u, action: action, reason: reason})
			continue
		}
		if canonical := h.Hosts[0] + "/" + rest; !slices.Contains(ask, canonical) {
			ask = append(ask, canonical)
		}
	}
	if len(ask) == 0 {
		return all, nil
	}
	answers, outage, err := h.asker.Ask(ctx, namespace, ask)
	if errors.Is(err, ErrBusy) {
		return nil, err
	}
	if failed := cmp.Or(outage, err); failed != nil {
		h.outages.Inc()
		h.Log.Warn("Holdfast did not answer", "kept", outage != nil, "error", failed.Error())
	}
	for _, u := range uses {
		host, rest := splitHost(u.image)
		switch {
		case !slices.Contains(h.Hosts, host):
		case err != nil:
			all = append(all, verdict{use: u, action: h.Rules.Unreachable, reason: "Holdfast could not be asked about it"})
		default:
			all = append(all, h.verdictOf(u, answers[h.Hosts[0]+"/"+rest]))
		}
	}
	return all, nil
}

// verdictOf returns the verdict for a decision of Holdfast.
func (h *Handler) verdictOf(u use, c *findingspb.ImageCheck) verdict {
	v := verdict{use: u, action: h.Rules.Unknown, reason: c.GetReason(), digest: c.GetDigest()}
	switch c.GetDecision() {
	case findingspb.ImageDecision_IMAGE_DECISION_ALLOWED:
		v.action = Allow
	case findingspb.ImageDecision_IMAGE_DECISION_REFUSED:
		v.action = Refuse
	}
	return v
}

// mutate adds to each tag of our images the digest that it has at present, so that the cluster runs what was checked.
// An image about which nothing is known keeps its tag.
func (h *Handler) mutate(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{Allowed: true}
	uses, err := newUses(r.Kind.Kind, r.Object.Raw, r.OldObject.Raw)
	if err != nil {
		return response // the validation refuses it
	}
	uses = slices.DeleteFunc(uses, func(u use) bool { return strings.Contains(u.image, "@") })
	verdicts, err := h.judge(ctx, r.Namespace, uses)
	if err != nil {
		return response
	}
	type patch struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value"`
	}
	var patches []patch
	for _, v := range verdicts {
		if v.digest != "" {
			patches = append(patches, patch{"replace", v.use.pointer, v.use.image + "@" + v.digest})
		}
	}
	if len(patches) > 0 {
		kind := admissionv1.PatchTypeJSONPatch
		response.PatchType = &kind
		response.Patch, _ = json.Marshal(patches) // cannot fail
	}
	return response
}

// clip shortens a text to at most n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}
