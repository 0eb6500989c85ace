package extract

// ParseRelease parses an os-release file.
var ParseRelease = parseRelease
