package login

import "strings"

// Program returns a short name for the program of a User-Agent header: the
// browser and its system, or the name that a command gives itself.
func Program(agent string) string {
	if !strings.HasPrefix(agent, "Mozilla/") {
		return agent
	}
	name, system := "A browser", ""
	for _, b := range []struct{ mark, name string }{ // first those that contain the marks of others, too
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
