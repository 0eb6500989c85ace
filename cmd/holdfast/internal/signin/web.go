package signin

import (
	"context"
	"fmt"
	"net/url"
	"strings"
)

// A Page is something of a server that a person can see in a browser. What the API has, such as groups and repos,
// has no pages: they come with the console.
type Page struct {
	path   string
	search string // what to look for on it
	issuer bool   // it is where people sign in
}

// AccountPage is where a person sees their account and their sessions.
func AccountPage() Page { return Page{path: "/account", issuer: true} }

// DocsPage is the reference of the API, or what is there about a path of it.
func DocsPage(path string) Page {
	path, _, _ = strings.Cut(path, "?")
	return Page{path: "/docs", search: path}
}

// pageAddress returns the address of a page of the server of the settings.
func (a *Agent) pageAddress(p Page) (string, error) {
	server, err := a.Server()
	if err != nil {
		return "", err
	}
	base := server.Text
	if p.issuer {
		if base, err = a.Issuer(); err != nil {
			return "", err
		}
	}
	address := strings.TrimRight(base, "/") + p.path
	if p.search != "" {
		address += "?" + url.Values{"q": {p.search}}.Encode()
	}
	return address, nil
}

// Browse opens a page in the person's browser. If there is none here, it prints the address.
func (a *Agent) Browse(ctx context.Context, p Page) error {
	address, err := a.pageAddress(p)
	if err != nil {
		return err
	}
	if openBrowser(ctx, address) {
		a.Note("a browser opens; if it does not, open %s", address)
		return nil
	}
	fmt.Fprintln(a.Out, address)
	return nil
}
