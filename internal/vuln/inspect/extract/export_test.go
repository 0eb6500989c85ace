package extract

// ParseRelease reads an os-release file.
var ParseRelease = parseRelease
