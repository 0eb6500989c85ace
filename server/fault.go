package server

import (
	"math"
	"net/http"
	"strconv"

	"github.com/holdfast-dev/holdfast/fault"
)

const typeURL = "type.googleapis.com/google.rpc."

// writeFault answers with the error shape of the API, on the paths that are not
// the API's.
func writeFault(w http.ResponseWriter, f *fault.Error, domain string) {
	details := []map[string]any{{"@type": typeURL + "ErrorInfo", "reason": f.Code.Reason(), "domain": domain}}
	if len(f.Fields) > 0 {
		var violations []map[string]string
		for _, v := range f.Fields {
			violations = append(violations, map[string]string{"field": v.Subject, "description": v.Description})
		}
		details = append(details, map[string]any{"@type": typeURL + "BadRequest", "fieldViolations": violations})
	}
	if f.RetryIn > 0 {
		seconds := strconv.Itoa(int(math.Ceil(f.RetryIn.Seconds())))
		w.Header().Set("Retry-After", seconds)
		details = append(details, map[string]any{"@type": typeURL + "RetryInfo", "retryDelay": seconds + "s"})
	}
	writeJSON(w, httpStatus(f), map[string]any{"code": int(f.Code), "message": f.Message, "details": details})
}

func httpStatus(f *fault.Error) int {
	switch f.Code {
	case fault.InvalidArgument, fault.FailedPrecondition:
		return http.StatusBadRequest
	case fault.PermissionDenied:
		return http.StatusForbidden
	case fault.AlreadyExists:
		return http.StatusConflict
	case fault.ResourceExhausted:
		return http.StatusTooManyRequests
	case fault.Unimplemented:
		return http.StatusMethodNotAllowed
	case fault.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
