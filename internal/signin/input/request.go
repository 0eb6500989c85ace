package input

import (
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// Remote returns the host that sent a request.
func Remote(r *http.Request) string { return resource.HostOf(r.RemoteAddr) }

// Network returns the network that sent a request. Attempts are counted per network.
func Network(r *http.Request) string { return resource.NetworkOf(Remote(r)) }

const longestAgent = 256 // greatest length in bytes

// Agent returns the User-Agent header of a request, without invalid characters and
// at most longestAgent long.
func Agent(r *http.Request) string {
	text := strings.ToValidUTF8(strings.ReplaceAll(r.UserAgent(), "\x00", ""), "")
	if len(text) > longestAgent {
		text = strings.ToValidUTF8(text[:longestAgent], "")
	}
	return text
}

// Program returns a short name for the program of a User-Agent header. The name of a
// browser contains its operating system. Other programs keep the name that they give
// themselves.
func Program(agent string) string {
	if !strings.HasPrefix(agent, "Mozilla/") {
		return agent
	}
	name, system := "A browser", ""
	// The order matters, because the headers of some browsers also contain the marks of others.
	for _, b := range []struct{ mark, name string }{
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"FxiOS/", "Firefox"},
		{"CriOS/", "Chrome"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"},
	} {
		if strings.Contains(agent, b.mark) {
			name = b.name
			break
		}
	}
	for _, s := range []struct{ mark, name string }{
		{"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Android", "Android"}, {"CrOS", "ChromeOS"},
		{"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"Linux", "Linux"},
	} {
		if strings.Contains(agent, s.mark) {
			system = " on " + s.name
			break
		}
	}
	return name + system
}

// MaxForm is the largest form or JSON body that is read, in bytes.
const MaxForm = 64 << 10

// Field returns a field of a form, or of the query of a GET request. It returns ""
// if the form cannot be read or the field is not Readable.
func Field(w http.ResponseWriter, r *http.Request, name string) string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return r.URL.Query().Get(name)
	}
	if r.PostForm == nil {
		r.Body = http.MaxBytesReader(w, r.Body, MaxForm)
		_ = r.ParseForm() // on an error, the fields are empty
	}
	if text := r.PostForm.Get(name); Readable(text) {
		return text
	}
	return ""
}
