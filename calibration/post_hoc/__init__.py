from calibration.post_hoc.calibrator import CALIBRATORS
import calibration.post_hoc.identity, calibration.post_hoc.temperature
def fit(n,a,b): return CALIBRATORS[n]().fit(a,b)
def names(w): return list(CALIBRATORS)
