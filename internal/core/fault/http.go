package fault

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// HTTPStatus returns the status of an HTTP response for this code.
func (c Code) HTTPStatus() int {
	switch c {
	case InvalidArgument, FailedPrecondition:
		return http.StatusBadRequest
	case Unauthenticated:
		return http.StatusUnauthorized
	case PermissionDenied:
		return http.StatusForbidden
	case NotFound:
		return http.StatusNotFound
	case AlreadyExists:
		return http.StatusConflict
	case ResourceExhausted:
		return http.StatusTooManyRequests
	case Unimplemented:
		return http.StatusMethodNotAllowed
	case Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// ServerSide reports whether an error is a failure of the service itself, which
// is logged with its cause.
func (e *Error) ServerSide() bool { return e.Code == Internal || e.Code == Unavailable }

// RetryAfter returns the value of a Retry-After header for a wait.
func RetryAfter(wait time.Duration) string { return strconv.Itoa(int(math.Ceil(wait.Seconds()))) }
