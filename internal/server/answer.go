package server

import (
	"encoding/json"
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has gone
}

const typeURL = "type.googleapis.com/google.rpc."

// writeFault writes an error in the JSON form of the API, for paths outside the API.
func writeFault(w http.ResponseWriter, f *fault.Error, domain string) {
	writeFaultAs(w, f.Code.HTTPStatus(), f, domain)
}

// writeFaultAs writes an error as writeFault does, with another HTTP status.
func writeFaultAs(w http.ResponseWriter, status int, f *fault.Error, domain string) {
	details := []map[string]any{{"@type": typeURL + "ErrorInfo", "reason": f.Code.Reason(), "domain": domain}}
	if len(f.Fields) > 0 {
		var violations []map[string]string
		for _, v := range f.Fields {
			violations = append(violations, map[string]string{"field": v.Subject, "description": v.Description})
		}
		details = append(details, map[string]any{"@type": typeURL + "BadRequest", "fieldViolations": violations})
	}
	if f.RetryIn > 0 {
		seconds := fault.RetryAfter(f.RetryIn)
		w.Header().Set("Retry-After", seconds)
		details = append(details, map[string]any{"@type": typeURL + "RetryInfo", "retryDelay": seconds + "s"})
	}
	writeJSON(w, status, map[string]any{"code": int(f.Code), "message": f.Message, "details": details})
}
