package login

import (
	"net/http"

	"github.com/holdfast-dev/holdfast/internal/signin/provider"
)

// Routes are the patterns that Handler serves.
var Routes = []string{
	"/oauth", "/oauth/", "/orgcheck", "/join", "/device", "/link", "/account", "/account/",
	"/signin", "/signin/", "/signout", "GET /favicon.ico",
}

// Handler serves the sign-in and account pages, and the OAuth endpoints for programs.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oauth", s.site.Handle(s.begin))
	mux.HandleFunc("GET "+provider.SharedRedirect, s.site.Handle(s.callback))
	mux.HandleFunc("GET "+provider.SharedRedirect+"/{provider}", s.site.Handle(s.callback))
	mux.HandleFunc("GET /orgcheck", s.orgcheck)
	mux.HandleFunc("GET /join", s.site.Handle(s.beginJoin))
	mux.HandleFunc("GET /device", s.site.Handle(s.showDevice))
	mux.HandleFunc("POST /device", s.site.Handle(s.enterDevice))
	mux.HandleFunc("GET /signin", s.site.Handle(s.showSignIn))
	mux.HandleFunc("POST /signin/organization", s.withFlow(s.chooseOrganization))
	mux.HandleFunc("GET /signin/provider", s.withFlow(s.chooseProvider))
	mux.HandleFunc("POST /signin/provider", s.withFlow(s.chooseProvider))
	mux.HandleFunc("POST /signin/password", s.withFlow(s.password))
	mux.HandleFunc("POST /signin/account", s.withFlow(s.chooseAccount))
	mux.HandleFunc("POST /signin/totp", s.withPassword(s.totp))
	mux.HandleFunc("POST /signin/recovery", s.withPassword(s.recovery))
	mux.HandleFunc("POST /signin/passkey/start", s.site.HandleScript(s.passkeyStart))
	mux.HandleFunc("POST /signin/passkey", s.site.HandleScript(s.passkey))
	mux.HandleFunc("POST /signin/join/start", s.withFlow(s.showJoin))
	mux.HandleFunc("POST /signin/join", s.withFlow(s.join))
	mux.HandleFunc("POST /signin/confirm", s.withFlow(s.confirm))
	mux.HandleFunc("POST /signin/other", s.withFlow(s.switchUser))
	mux.HandleFunc("GET /link", s.site.Handle(s.showLink))
	mux.HandleFunc("POST /link", s.site.Handle(s.followLink))
	mux.HandleFunc("GET /", s.site.Handle(s.site.ServeMissing))
	s.account.Routes(mux)
	s.site.AssetRoutes(mux)
	cross := http.NewCrossOriginProtection() // refuses forms of other sites, even if the browser sends our cookies
	cross.SetDenyHandler(s.site.Handle(func(w http.ResponseWriter, r *http.Request) error {
		return s.site.Problem(w, r, http.StatusForbidden, "This form was sent from another site", "Start again from here.")
	}))
	programs := http.NewServeMux() // endpoints for programs, which send no cookies
	programs.HandleFunc("POST /oauth/token", s.handleOAuth(s.tokenEndpoint))
	programs.HandleFunc("POST /oauth/device_authorization", s.handleOAuth(s.deviceEndpoint))
	programs.Handle("/", s.site.WithReadableQuery(cross.Handler(mux)))
	return s.site.WithActor(programs)
}
